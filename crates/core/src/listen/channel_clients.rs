//! Keeps the channels that each client of a worker listens to.

use std::collections::HashMap;

use super::Listening;
use super::{Channel, ListenerKey};
use crate::{Time, Token};

/// The clients of one worker that listen.
#[derive(Debug, Default)]
pub struct ChannelClients {
    listeners: HashMap<ListenerKey, HashMap<Channel, ChannelAudience>>,
    /// The time before which all notifications of a listener have been received here.
    fenced: HashMap<ListenerKey, Time>,
}

/// The clients that want one channel.
#[derive(Debug, Default)]
struct ChannelAudience {
    /// The clients that get all notifications of the channel.
    clients: Vec<Token>,
    /// The number of clients that have asked for the channel and have no answer yet.
    asking: usize,
}

impl ChannelClients {
    /// Notes that a client asks for these channels.
    pub fn asked(&mut self, key: &ListenerKey, channels: &[Channel]) {
        let lines = self.listeners.entry(key.clone()).or_default();
        for channel in channels {
            lines.entry(Channel::clone(channel)).or_default().asking += 1;
        }
    }

    /// Notes the answer to a client, which gets the channels' notifications from now on if `granted`. Returns the
    /// channels that no client wants any more.
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

    /// Removes a client from these channels. Returns the channels that no client wants any more.
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

    /// Replaces the token of a client that listens to these channels.
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

    /// Notes that all notifications before this time were delivered.
    pub fn fenced(&mut self, key: &ListenerKey, at: Time) {
        if self.listeners.contains_key(key) {
            let fenced = self.fenced.entry(key.clone()).or_default();
            *fenced = at.max(*fenced);
        }
    }

    /// Returns whether the listening clients have received all notifications that were sent on a server before `at`,
    /// the time at which the server's last client released it. If not, the server must not go to this client: pgweir
    /// would name this client as the sender of those notifications.
    #[must_use]
    pub fn has_delivered_before(&self, listening: &Listening, at: Time) -> bool {
        self.fenced
            .get(listening.key())
            .is_some_and(|&fenced| at <= fenced)
    }

    /// Returns the clients that listen to this channel.
    #[must_use]
    pub fn clients_of(&self, key: &ListenerKey, channel: &[u8]) -> &[Token] {
        let audience = self.listeners.get(key).and_then(|lines| lines.get(channel));
        audience.map_or(&[], |audience| &audience.clients)
    }

    /// Returns the clients that listen to any channel of this listener, each once.
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
