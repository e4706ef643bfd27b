//! Which clients of a worker listen to what.

use std::collections::HashMap;

use super::Listening;
use super::{Channel, ListenerKey};
use crate::{Time, Token};

/// The clients of one worker that listen.
#[derive(Debug, Default)]
pub struct ChannelClients {
    listeners: HashMap<ListenerKey, HashMap<Channel, ChannelAudience>>,
    /// All that was notified before is known: here, of which listener.
    fenced: HashMap<ListenerKey, Time>,
}

/// Who wants one channel.
#[derive(Debug, Default)]
struct ChannelAudience {
    /// They hear all that comes.
    clients: Vec<Token>,
    /// So many have asked for it and not been answered.
    asking: usize,
}

impl ChannelClients {
    /// A client asks for these channels.
    pub fn asked(&mut self, key: &ListenerKey, channels: &[Channel]) {
        let lines = self.listeners.entry(key.clone()).or_default();
        for channel in channels {
            lines.entry(Channel::clone(channel)).or_default().asking += 1;
        }
    }

    /// It has been answered: from here on it hears them, if `granted`. Gives the channels that nobody
    /// wants any more.
    pub fn answered(
        &mut self,
        key: &ListenerKey,
        channels: &[Channel],
        client: Option<Token>,
    ) -> Vec<Channel> {
        if let Some(lines) = self.listeners.get_mut(key) {
            for channel in channels {
                if let Some(audience) = lines.get_mut(&channel[..]) {
                    audience.asking -= 1;
                    audience.clients.extend(client);
                }
            }
        }
        self.without_audience(key, channels)
    }

    /// A client wants these no more. Gives the channels that nobody wants any more.
    pub fn left(&mut self, key: &ListenerKey, channels: &[Channel], client: Token) -> Vec<Channel> {
        if let Some(lines) = self.listeners.get_mut(key) {
            for channel in channels {
                let audience = lines.get_mut(&channel[..]);
                if let Some(clients) = audience.map(|audience| &mut audience.clients)
                    && let Some(at) = clients.iter().position(|&one| one == client)
                {
                    clients.swap_remove(at);
                }
            }
        }
        self.without_audience(key, channels)
    }

    /// A client that hears these has another connection.
    pub fn renamed(&mut self, key: &ListenerKey, channels: &[Channel], from: Token, to: Token) {
        let Some(lines) = self.listeners.get_mut(key) else {
            return;
        };
        for channel in channels {
            let audience = lines.get_mut(&channel[..]);
            let place = audience.and_then(|audience| {
                let mut clients = audience.clients.iter_mut();
                clients.find(|client| **client == from)
            });
            if let Some(client) = place {
                *client = to;
            }
        }
    }

    /// What was notified before this time has been told.
    pub fn fenced(&mut self, key: &ListenerKey, at: Time) {
        if self.listeners.contains_key(key) {
            let fenced = self.fenced.entry(key.clone()).or_default();
            *fenced = at.max(*fenced);
        }
    }

    /// Has a client that listens heard all that was notified on a server before `at`, when its last client gave it
    /// back? It would take what comes later for its own.
    #[must_use]
    pub fn has_delivered_before(&self, listening: &Listening, at: Time) -> bool {
        self.fenced
            .get(&listening.key)
            .is_some_and(|&fenced| at <= fenced)
    }

    /// Who hears this channel.
    #[must_use]
    pub fn clients_of(&self, key: &ListenerKey, channel: &[u8]) -> &[Token] {
        let audience = self.listeners.get(key).and_then(|lines| lines.get(channel));
        audience.map_or(&[], |audience| &audience.clients)
    }

    /// Who hears anything of this listener, each once.
    #[must_use]
    pub fn clients(&self, key: &ListenerKey) -> Vec<Token> {
        let lines = self.listeners.get(key).into_iter().flatten();
        let mut all: Vec<Token> = lines
            .flat_map(|(_, audience)| audience.clients.iter().copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn without_audience(&mut self, key: &ListenerKey, channels: &[Channel]) -> Vec<Channel> {
        let Some(lines) = self.listeners.get_mut(key) else {
            return Vec::new();
        };
        let mut gone = Vec::new();
        for channel in channels {
            let is_unwanted = lines
                .get(&channel[..])
                .is_some_and(|audience| audience.clients.is_empty() && audience.asking == 0);
            if is_unwanted {
                lines.remove(&channel[..]);
                gone.push(Channel::clone(channel));
            }
        }
        if lines.is_empty() {
            self.listeners.remove(key);
            self.fenced.remove(key);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolId;

    fn client(slot: u32) -> Token {
        Token {
            slot,
            generation: 0,
        }
    }

    #[test]
    fn a_channel_is_given_up_with_its_last_client() {
        let key = ListenerKey {
            pool: PoolId(1),
            encoding: b"UTF8"[..].into(),
        };
        let (jobs, news): (Channel, Channel) = (b"jobs"[..].into(), b"news"[..].into());
        let both = [Channel::clone(&jobs), Channel::clone(&news)];
        let mut hub = ChannelClients::default();
        hub.asked(&key, &both);
        assert!(hub.clients_of(&key, b"jobs").is_empty(), "not yet");
        assert_eq!(hub.answered(&key, &both, Some(client(1))), []);
        hub.asked(&key, &both[..1]);
        assert_eq!(hub.left(&key, &both, client(1)), [Channel::clone(&news)]);
        assert_eq!(hub.answered(&key, &both[..1], Some(client(2))), []);
        assert_eq!(hub.clients_of(&key, b"jobs"), [client(2)]);
        assert_eq!(hub.clients(&key), [client(2)]);
        assert_eq!(
            hub.left(&key, &both[..1], client(2)),
            [Channel::clone(&jobs)]
        );
        assert!(hub.listeners.is_empty());
        hub.asked(&key, &both[..1]);
        assert_eq!(hub.answered(&key, &both[..1], None), [jobs], "refused");
        assert!(hub.listeners.is_empty());
    }
}
