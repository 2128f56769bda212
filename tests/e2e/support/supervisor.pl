# What a service manager does with a socket unit: it listens, hands its sockets over to a service, and starts that again
# whenever it has ended, while the sockets stay open. perl supervisor.pl SOCKETS ADDRESS PORT COMMAND...
use strict;
use warnings;
use IO::Socket::INET;
use POSIX ();

my ($count, $address, $port, @command) = @ARGV;
my @sockets;
for (1 .. $count) {
    my $socket = IO::Socket::INET->new(
        LocalAddr => $address, LocalPort => $port, Proto => 'tcp', Listen => 4096, ReuseAddr => 1, ReusePort => 1,
    ) or die "cannot listen: $!";
    $port = $socket->sockport;
    push @sockets, $socket;
}
# Above the place where they are handed over.
my @high = map { fcntl($_, 1030, 100) || die "fcntl: $!" } @sockets; # F_DUPFD_CLOEXEC
$| = 1;
print "listening on $address:$port\n";
my $ended = 0;
my $child = 0;
$SIG{TERM} = sub { $ended = 1; kill 'TERM', $child if $child; };
$SIG{HUP} = sub { kill 'TERM', $child if $child; };
until ($ended) {
    $child = fork() // die "fork: $!";
    if ($child == 0) {
        for my $number (0 .. $#high) {
            POSIX::dup2($high[$number], 3 + $number) // die "dup2: $!";
        }
        $ENV{LISTEN_FDS} = scalar @high;
        $ENV{LISTEN_PID} = $$;
        exec { $command[0] } map { s/\@PORT\@/$port/r } @command or die "exec: $!";
    }
    while (waitpid($child, 0) != $child) { }
    die "the service failed: $?" if $? != 0;
}
