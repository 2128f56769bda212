//! The Redis protocol, as far as tests need it: a client that sends commands and reads replies.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply of Redis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// No value.
    Nil,
    /// A simple or a bulk string.
    Text(Vec<u8>),
    /// An integer.
    Int(i64),
    /// An error, with its code in front.
    Error(String),
    /// An array.
    List(Vec<Reply>),
}

impl Reply {
    /// The text of a string.
    pub(crate) fn text(&self) -> String {
        match self {
            Reply::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("no string: {other:?}"),
        }
    }

    /// The number.
    pub(crate) fn to_number(&self) -> u64 {
        match self {
            Reply::Int(number) => u64::try_from(*number).unwrap(),
            other => panic!("no number: {other:?}"),
        }
    }

    /// The parts of a list.
    pub(crate) fn list(&self) -> &[Reply] {
        match self {
            Reply::List(parts) => parts,
            other => panic!("no list: {other:?}"),
        }
    }
}

impl PartialEq<&str> for Reply {
    fn eq(&self, other: &&str) -> bool {
        matches!(self, Reply::Text(bytes) if bytes == other.as_bytes())
    }
}

/// A connection that speaks RESP 2, the protocol of Redis.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects. Neither that nor any later answer may take longer than `within`.
    pub(crate) fn open(address: SocketAddr, within: Duration) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&address, within)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends a command and reads its reply. After an error the connection is of no more use.
    pub(crate) fn ask<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply> {
        self.send(command)?;
        self.read()
    }

    /// Sends a command.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<()> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command.iter().map(AsRef::as_ref) {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads the next reply.
    pub(crate) fn read(&mut self) -> Result<Reply> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or(ErrorKind::UnexpectedEof)?;
        let (kind, rest) = line.split_first().ok_or_else(|| no_resp(line))?;
        let text = String::from_utf8_lossy(rest);
        let number = || text.parse::<i64>().map_err(|_| no_resp(line));
        Ok(match kind {
            b'+' => Reply::Text(rest.to_vec()),
            b'-' => Reply::Error(text.into_owned()),
            b':' => Reply::Int(number()?),
            b'$' | b'*' if number()? == -1 => Reply::Nil,
            b'$' => {
                let len = usize::try_from(number()?).map_err(|_| no_resp(line))?;
                let mut bytes = vec![0; len + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(len);
                Reply::Text(bytes)
            }
            b'*' => Reply::List((0..number()?).map(|_| self.read()).collect::<Result<_>>()?),
            _ => return Err(no_resp(line)),
        })
    }

    /// True if nothing comes for so long. What does come is still there for [`Client::read`]; an end is something, too.
    pub(crate) fn is_silent(&mut self, within: Duration) -> Result<bool> {
        let usual = self.stream.get_ref().read_timeout()?;
        self.stream.get_ref().set_read_timeout(Some(within))?;
        let is_silent = self.stream.fill_buf().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.stream.get_ref().set_read_timeout(usual)?;
        Ok(is_silent)
    }
}

fn no_resp(line: &[u8]) -> Error {
    Error::new(ErrorKind::InvalidData, format!("no RESP: {:?}", String::from_utf8_lossy(line)))
}
