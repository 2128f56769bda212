#!/usr/bin/python3
"""Hostile segments against a node, made with scapy: `segments.py INTERFACE NODE MAC`.

Sends from addresses of the node's subnet that no host has, and in the name of clients whose segments it sees on INTERFACE.
Prints a line for each attack, and fails if an answer of the node breaks a rule.
"""

import random
import socket
import struct
import sys
import time

from scapy.all import IP, TCP, Ether, Raw, fragment, fuzz, get_if_hwaddr

PORT = 8080
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
# Places in a frame.
IP_CHECKSUM, TCP_CHECKSUM = 24, 50
# Longest wait for an answer: machines that test are busy.
PATIENCE_S = 30
# Connections that are opened at once.
TOGETHER = 50
# Packets that the kernel loops back to sockets like this one.
OUTGOING = 4

interface, node, node_mac = sys.argv[1:]
own_mac = get_if_hwaddr(interface)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
# SO_RCVBUFFORCE: room for the answers to many connections.
wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
wire.bind((interface, 0))
dice = random.Random(24)
subnet = node.rsplit(".", 1)[0]


class Segment:
    """A segment on the wire."""

    def __init__(self, frame, is_outgoing):
        self.is_outgoing = is_outgoing
        ip = frame[14:]
        tcp = ip[(ip[0] & 15) * 4 : struct.unpack_from("!H", ip, 2)[0]]
        self.source, self.destination = socket.inet_ntoa(ip[12:16]), socket.inet_ntoa(ip[16:20])
        self.sport, self.dport, self.seq, self.ack = struct.unpack_from("!HHII", tcp)
        self.flags = tcp[13]
        self.payload = tcp[(tcp[12] >> 4) * 4 :]
        # Linux begins the options of all but SYNs with two bytes of padding and the timestamps.
        has_timestamps = tcp[20:24] == b"\x01\x01\x08\x0a"
        self.timestamps = struct.unpack_from("!II", tcp, 24) if has_timestamps else None


def seen(until):
    """Yields the segments on the wire until a time."""
    while (left := until - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            frame, about = wire.recvfrom(65536)
        except TimeoutError:
            return
        if len(frame) >= 54 and frame[12:14] == b"\x08\x00" and frame[23] == 6:
            yield Segment(frame, about[2] == OUTGOING)


def drain():
    """Forgets the frames that have arrived."""
    wire.setblocking(False)
    try:
        while True:
            wire.recv(65536)
    except BlockingIOError:
        pass


def packet(source, sport, flags, seq=0, ack=0, payload=b"", **fields):
    """Returns a segment to the node in its frame, with fields of IP and TCP as scapy names them."""
    ip = {name[3:]: fields.pop(name) for name in list(fields) if name.startswith("ip_")}
    tcp = TCP(sport=sport, dport=fields.pop("dport", PORT), flags=flags, seq=seq % 2**32, ack=ack % 2**32, **fields)
    return Ether(src=own_mac, dst=node_mac) / IP(src=source, dst=node, **ip) / tcp / Raw(payload)


def send(*arguments, **fields):
    wire.send(bytes(packet(*arguments, **fields)))


def send_damaged(place, *arguments, **fields):
    """Sends a segment with another byte at a place of its frame."""
    frame = bytearray(bytes(packet(*arguments, **fields)))
    frame[place] ^= dice.randrange(1, 256)
    wire.send(bytes(frame))


class Peer:
    """A connection of a host that is not there."""

    def __init__(self, source, sport, options=()):
        self.source, self.sport = source, sport
        self.seq = dice.getrandbits(32)
        self.options = list(options)

    def segment(self, flags, offset=0, acked=0, payload=b""):
        """Returns the arguments of a segment that begins and acknowledges so many bytes after the handshake."""
        return self.source, self.sport, flags, self.seq + offset, self.server_seq + acked, payload

    def send(self, *arguments, window=8192, urgptr=0, **fields):
        send(*self.segment(*arguments, **fields), window=window, urgptr=urgptr)

    def is_answered_by(self, segment):
        return segment.destination == self.source and segment.dport == self.sport and not segment.is_outgoing


def connect(peers):
    """Connects peers, a few at a time: answers stand in a queue behind the frames of clients, which take long to read."""
    for start in range(0, len(peers), TOGETHER):
        connect_together(peers[start : start + TOGETHER])


def connect_together(peers):
    """Connects peers, all at once."""
    waiting = {(peer.source, peer.sport): peer for peer in peers}
    deadline = time.monotonic() + PATIENCE_S
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} of {len(peers)} got no answer to their SYN"
        drain()
        for peer in waiting.values():
            send(peer.source, peer.sport, SYN, peer.seq, options=peer.options)
        for segment in seen(time.monotonic() + 1):
            peer = waiting.get((segment.destination, segment.dport))
            if peer and segment.flags == SYN | ACK and segment.ack == (peer.seq + 1) % 2**32:
                del waiting[peer.source, peer.sport]
                peer.seq, peer.server_seq = segment.ack, (segment.seq + 1) % 2**32
                peer.send(ACK)
            if not waiting:
                break


def collect(peer, is_done, seconds=PATIENCE_S):
    """Returns what the node has sent in order, once it is enough or the time is over."""
    pieces, received = {}, b""
    for segment in seen(time.monotonic() + seconds):
        if not peer.is_answered_by(segment):
            continue
        assert not segment.flags & RST, f"a reset after {received!r}"
        pieces[(segment.seq - peer.server_seq) % 2**32] = segment.payload
        while (piece := pieces.pop(len(received), None)) is not None and piece:
            received += piece
        if is_done(received):
            break
    return received


def highest(peer, segments, least=0):
    """Returns how far the node sends in these segments, or until it has sent that much."""
    reached = 0
    for segment in segments:
        if peer.is_answered_by(segment) and segment.payload:
            reached = max(reached, (segment.seq - peer.server_seq) % 2**32 + len(segment.payload))
            if 0 < least <= reached:
                break
    return reached


def host(number):
    return f"{subnet}.{number}"


def get(path="/abc"):
    return f"GET {path} HTTP/1.1\r\nHost: carom.test\r\n\r\n".encode()


def is_answer(received):
    return received.startswith(b"HTTP/1.1 302 ") and received.endswith(b"\r\n\r\n")


def end(*peers):
    for peer in peers:
        peer.send(RST, offset=getattr(peer, "sent", 0))


def blind():
    """Resets, SYNs, data and FINs with guessed numbers, and in the window of clients that are seen."""
    tried = 0
    lens = {}
    for segment in seen(time.monotonic() + PATIENCE_S):
        # What has waited here is of the past for its client.
        drain()
        if segment.source == node or segment.dport != PORT or not segment.payload:
            continue
        tried += 1
        client, port = segment.source, segment.sport
        for flags in (RST, SYN, ACK | PSH, FIN | ACK):
            send(client, port, flags, dice.getrandbits(32), dice.getrandbits(32), b"" if flags & (RST | SYN) else b"evil")
        # In the window, where only the exact number counts. Requests of a client have one length, so none ends there.
        step = lens.setdefault((client, port), len(segment.payload))
        ahead = segment.seq + 400 * step + 1
        send(client, port, RST, ahead)
        send(client, port, RST | ACK, ahead, segment.ack)
        # Too old, then with a timestamp that the node takes, so that the flags and the acknowledgement are looked at.
        value, echo = segment.timestamps
        for options in ([], [("Timestamp", (value + 1000, echo))]):
            send(client, port, SYN, ahead, options=options)
            send(client, port, ACK | PSH, ahead, segment.ack + (1 << 30), b"GET /evil", options=options)
            send(client, port, ACK | PSH, ahead, segment.ack - (1 << 30), b"GET /evil", options=options)
        if tried == 200:
            break
    assert tried == 200, f"only {tried} requests of clients were seen"
    return f"{tried} times"


def tiny_segments():
    """Asks for segments of one byte."""
    peer = Peer(host(50), 2000, [("MSS", 1)])
    connect([peer])
    peer.send(ACK | PSH, payload=get())
    lens = []
    answer = b""
    for segment in seen(time.monotonic() + PATIENCE_S):
        if peer.is_answered_by(segment) and segment.payload and segment.seq == (peer.server_seq + len(answer)) % 2**32:
            answer += segment.payload
            lens.append(len(segment.payload))
            peer.send(ACK, len(get()), len(answer))
            if is_answer(answer):
                break
    assert is_answer(answer), answer
    assert all(length >= 40 for length in lens[:-1]), lens
    peer.sent = len(get())
    end(peer)
    return f"{len(lens)} segments"


def overlaps():
    """Sends a request in pieces that contradict each other: the first bytes count."""
    peer = Peer(host(51), 2001)
    connect([peer])
    request = get()
    peer.send(ACK | PSH, 20, payload=request[20:])
    peer.send(ACK | PSH, 10, payload=request[10:20] + b"\r\n\r\n/evil")
    peer.send(ACK | PSH, 15, payload=b"X" * 200)
    peer.send(ACK | PSH, 0, payload=request[:10])
    answer = collect(peer, is_answer)
    assert is_answer(answer), answer
    peer.sent = 215
    end(peer)
    return "one request"


def divided_acknowledgements():
    """Acknowledges byte by byte, which must not open the congestion window faster."""
    peer = Peer(host(52), 2002, [("MSS", 1000)])
    connect([peer])
    request = get("/rest/v3/short-urls/export")
    peer.send(ACK | PSH, payload=request)
    assert highest(peer, seen(time.monotonic() + PATIENCE_S), 1000) >= 1000
    first = max(1000, highest(peer, seen(time.monotonic() + 0.5)))
    for acked in range(1, 1001):
        peer.send(ACK, len(request), acked)
    second = highest(peer, seen(time.monotonic() + 0.5))
    assert second <= 2 * first + 2000, f"{second} bytes after {first}"
    peer.sent = len(request)
    end(peer)
    return f"{first} bytes, then {second}"


def closed_windows():
    """Has large answers prepared, and announces no window."""
    peers = [Peer(host(53), 3000 + at) for at in range(50)]
    connect(peers)
    request = get("/rest/v3/short-urls/export")
    for peer in peers:
        peer.send(ACK | PSH, payload=request, window=0)
    places = {peer.sport: peer for peer in peers}
    probes = 0
    for segment in seen(time.monotonic() + PATIENCE_S):
        peer = places.get(segment.dport)
        if peer and peer.is_answered_by(segment):
            assert not segment.payload, "data without a window"
            probes += 1
            peer.send(ACK, len(request), window=0)
        if probes == 3 * len(peers):
            break
    assert probes == 3 * len(peers), probes
    for peer in peers:
        peer.sent = len(request)
    end(*peers)
    return f"{probes} probes"


def silent_readers():
    """Has the node send to many connections that acknowledge nothing, in segments as small as may be."""
    peers = [Peer(host(60 + at % 10), 4000 + at // 10, [("MSS", 1)]) for at in range(900)]
    connect(peers)
    requests = get() * 20
    for peer in peers:
        peer.send(ACK | PSH, payload=requests)
    return f"{len(peers)} connections"


def odd_flags():
    """Christmas trees, segments without flags, and every other combination, to an open port and in a connection."""
    peer = Peer(host(54), 2003)
    connect([peer])
    for flags in range(256):
        send(host(55), 5000 + flags, flags, dice.getrandbits(32), dice.getrandbits(32), urgptr=7)
        # In the connection: behind its window.
        peer.send(flags, offset=1 << 20, acked=0, urgptr=7)
    peer.send(ACK | PSH | URG, payload=get(), urgptr=5)
    answer = collect(peer, is_answer)
    assert is_answer(answer), answer
    return "512 segments"


def fragments():
    """Fragments that are tiny, overlap, come alone or in reverse."""
    for at in range(100):
        whole = packet(host(56), 6000 + at, SYN, at, options=[("MSS", 1000), ("SAckOK", b"")])[IP]
        whole.id = at
        parts = fragment(whole, fragsize=8)
        if at % 4 == 1:
            parts.reverse()
        elif at % 4 == 2:
            parts = parts[-1:]
        elif at % 4 == 3:
            second = parts[1].copy()
            second.frag = 0
            parts.insert(1, second)
        for part in parts:
            wire.send(bytes(Ether(src=own_mac, dst=node_mac) / part))
    return "100 packets"


def bad_checksums():
    """Segments with wrong checksums, with and without a connection."""
    peer = Peer(host(57), 2004)
    connect([peer])
    for at in range(50):
        send_damaged(TCP_CHECKSUM, host(57), 7000 + at, SYN, 1)
        send_damaged(IP_CHECKSUM, host(57), 7000 + at, SYN, 1)
        send_damaged(TCP_CHECKSUM, *peer.segment(ACK | PSH, payload=b"XXXX"))
        send_damaged(TCP_CHECKSUM, *peer.segment(RST))
    peer.send(ACK | PSH, payload=get())
    answer = collect(peer, is_answer)
    assert is_answer(answer), answer
    return "200 segments"


def broken_headers():
    """Options without an end, lengths that lie, and frames that end anywhere."""
    options = [b"\x02", b"\x02\x00\x00\x00", b"\x02\x04\x05", b"\x08\xff\x00\x00", b"\x05\x02\x00\x00", b"\x05\x0b" + b"\0" * 9]
    options += [b"\x03\x03\xff\x00", b"\x03\x03\x0e\x08", b"\x01" * 39 + b"\x02", b"\xfe\x01\x00\x00"]
    for number, raw in enumerate(options):
        padded = raw + b"\x02" * (-len(raw) % 4)
        whole = packet(host(58), 8000 + number, SYN, 1, payload=padded, dataofs=5 + len(padded) // 4)
        wire.send(bytes(whole))
    for offset in range(16):
        send(host(58), 8100 + offset, SYN, 1, dataofs=offset)
    for length in list(range(80)) + [1500, 65535]:
        send(host(58), 8200, ACK, 1, 1, b"x" * 20, ip_len=length)
    for words in range(16):
        send(host(58), 8300, SYN, 1, ip_ihl=words)
    whole = bytes(packet(host(58), 8400, SYN, 1, options=[("MSS", 1000)]))
    for length in range(14, len(whole)):
        wire.send(whole[:length])
    # The node at both ends, and addresses that no host has.
    for source in (node, "255.255.255.255", "224.0.0.1", "0.0.0.0", "127.0.0.1"):
        send(source, PORT, SYN, 1)
        send(source, 0, SYN, 1)
    return f"{len(options) + 16 + 82 + 16 + len(whole) - 14 + 10} frames"


def anything():
    """Segments whose every field is random."""
    for _ in range(500):
        whole = Ether(src=own_mac, dst=node_mac) / IP(src=host(59), dst=node) / fuzz(TCP(dport=PORT))
        wire.send(bytes(whole) + dice.randbytes(dice.randrange(60)))
    return "500 segments"


for attack in (
    blind,
    tiny_segments,
    overlaps,
    divided_acknowledgements,
    closed_windows,
    odd_flags,
    fragments,
    bad_checksums,
    broken_headers,
    anything,
    silent_readers,
):
    print(f"{attack.__name__}: {attack()}", flush=True)
