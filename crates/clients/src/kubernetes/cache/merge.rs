//! One watch of several namespaces.

use std::collections::VecDeque;

use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use kube::runtime::watcher::{Error, Event};

/// What a watch reports of objects.
type Events<K> = BoxStream<'static, Result<Event<K>, Error>>;

/// Merges the watches of several namespaces into one: the list is complete when it is complete in all of them, and a watch
/// that fails ends the whole, so that its reader lists all of them again.
pub(super) fn merge<K: Send + 'static>(
    watches: Vec<Events<K>>,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static {
    let merged = Merged { listing: watches.into(), watching: SelectAll::new(), has_started: false };
    stream::unfold(merged, |mut merged| async move { Some((merged.next().await?, merged)) })
}

struct Merged<K> {
    /// The watches whose lists are not complete. Only the first is polled: an event of a list that is complete must not be
    /// lost when the lists replace the content of a cache.
    listing: VecDeque<Events<K>>,
    watching: SelectAll<Events<K>>,
    has_started: bool,
}

impl<K: Send + 'static> Merged<K> {
    async fn next(&mut self) -> Option<Result<Event<K>, Error>> {
        if !self.has_started {
            self.has_started = true;
            return Some(Ok(Event::Init));
        }

        while let Some(first) = self.listing.front_mut() {
            match first.next().await? {
                Ok(Event::Init) => {}
                Ok(Event::InitDone) => {
                    let listed = self.listing.pop_front()?;
                    // A watch that ends must be noticed: the others would go on without it.
                    self.watching.push(listed.chain(ended()).boxed());
                    if self.listing.is_empty() {
                        return Some(Ok(Event::InitDone));
                    }
                }
                event => return Some(event),
            }
        }

        Some(match self.watching.next().await? {
            // It lists again, which one namespace cannot do for all of them.
            Ok(Event::Init | Event::InitApply(_) | Event::InitDone) => Err(Error::NoResourceVersion),
            event => event,
        })
    }
}

/// What follows a watch that ended.
fn ended<K: Send + 'static>() -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static {
    stream::once(async { Err(Error::NoResourceVersion) })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc;

    use super::*;

    type Sender = mpsc::UnboundedSender<Result<Event<&'static str>, Error>>;

    fn watch() -> (Sender, Events<&'static str>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let receiver =
            stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        (sender, receiver.boxed())
    }

    fn send(sender: &Sender, events: impl IntoIterator<Item = Event<&'static str>>) {
        for event in events {
            sender.send(Ok(event)).unwrap();
        }
    }

    /// What can be read now, as text.
    fn read(merged: &mut BoxStream<'static, Result<Event<&'static str>, Error>>) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(Some(event)) = merged.next().now_or_never() {
            seen.push(event.map_or_else(|_| "error".to_owned(), |event| format!("{event:?}")));
        }
        seen
    }

    #[test]
    fn the_list_is_complete_when_all_are_and_no_event_is_lost() {
        let ((first, one), (second, two)) = (watch(), watch());
        let mut merged = merge(vec![one, two]).boxed();
        send(&second, [Event::Init, Event::InitApply("b"), Event::InitDone, Event::Delete("b")]);
        assert_eq!(read(&mut merged), ["Init"], "the first namespace is not listed");
        send(&first, [Event::Init, Event::InitApply("a"), Event::InitDone]);
        assert_eq!(read(&mut merged), ["InitApply(\"a\")", "InitApply(\"b\")", "InitDone", "Delete(\"b\")"]);
        send(&first, [Event::Apply("a")]);
        assert_eq!(read(&mut merged), ["Apply(\"a\")"]);
    }

    #[test]
    fn a_watch_that_fails_ends_or_lists_again_fails_the_whole() {
        for how in ["fails", "ends", "lists again"] {
            let ((first, one), (second, two)) = (watch(), watch());
            let mut merged = merge(vec![one, two]).boxed();
            for sender in [&first, &second] {
                send(sender, [Event::Init, Event::InitDone]);
            }
            assert_eq!(read(&mut merged), ["Init", "InitDone"]);
            match how {
                "fails" => second.send(Err(Error::NoResourceVersion)).unwrap(),
                "ends" => drop(second),
                _ => send(&second, [Event::Init]),
            }
            assert_eq!(read(&mut merged).first().map(String::as_str), Some("error"), "{how}");
            drop(first);
        }
    }
}
