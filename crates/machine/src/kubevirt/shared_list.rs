//! One consistent list for all machines that ask at the same time.
//!
//! A list that has to show the newest state takes an API server about 100 ms, however many objects it selects. Machines
//! that ask while a list is under way wait for the next one, which is shared by all of them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tokio::sync::Semaphore;
use vitistack_plan::machine::Identity;

use super::{
    kind::{Object, belongs_to},
    read::ReadError,
};

/// The maximum number of identities in one label selector: their UIDs fit into the 8 KiB that proxies accept as a URL.
const BATCH_LIMIT: usize = 100;

/// The longest value of a label.
const LABEL_LIMIT: usize = 63;

/// What one list has to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The machines.
    pub identities: BTreeSet<Identity>,
    /// The namespaces that their objects are in.
    pub namespaces: BTreeSet<String>,
    /// The version that the list must have reached; none for the newest.
    pub version: Option<u64>,
}

impl ListRequest {
    fn new(identity: &Identity, namespace: &str, version: Option<u64>) -> Self {
        let (identities, namespaces) = ([identity.clone()].into(), [namespace.to_owned()].into());
        Self { identities, namespaces, version }
    }

    fn add(&mut self, identity: &Identity, namespace: &str, version: Option<u64>) {
        self.identities.insert(identity.clone());
        self.namespaces.insert(namespace.to_owned());
        self.version = self.version.zip(version).map(|(version, other)| version.max(other));
    }
}

type Answer = Result<Arc<[Object]>, ReadError>;

type Fetch = Arc<dyn Fn(ListRequest) -> BoxFuture<'static, Result<Vec<Object>, ReadError>> + Send + Sync>;

/// Lists the objects of one kind, one list at a time.
pub struct SharedList {
    fetch: Fetch,
    /// One permit: a list starts when the previous one has ended.
    turn: Arc<Semaphore>,
    next: Mutex<Option<Batch>>,
}

/// A list that has not started yet, unless its request was taken.
struct Batch {
    request: Arc<Mutex<Option<ListRequest>>>,
    answer: WeakShared<BoxFuture<'static, Answer>>,
}

impl SharedList {
    /// Returns a list that is read with `fetch`.
    pub fn new(
        fetch: impl Fn(ListRequest) -> BoxFuture<'static, Result<Vec<Object>, ReadError>> + Send + Sync + 'static,
    ) -> Self {
        Self { fetch: Arc::new(fetch), turn: Arc::new(Semaphore::new(1)), next: Mutex::default() }
    }

    /// Returns the objects in a namespace that carry the identity, from a list that starts after this call and has
    /// reached `version`, or the newest one if there is none.
    pub async fn owned(
        &self,
        namespace: &str,
        identity: &Identity,
        version: Option<u64>,
    ) -> Result<Vec<Object>, ReadError> {
        let is_mine = |object: &&Object| {
            belongs_to(object, identity) && object.metadata.namespace.as_deref() == Some(namespace)
        };
        if !is_label_value(identity.as_str()) {
            // In a shared selector it would fail the list of every other machine.
            let objects = (self.fetch)(ListRequest::new(identity, namespace, version)).await?;
            return Ok(objects.iter().filter(is_mine).cloned().collect());
        }
        let objects = self.join(namespace, identity, version).await?;
        Ok(objects.iter().filter(is_mine).cloned().collect())
    }

    /// Joins the list that starts next.
    fn join(
        &self,
        namespace: &str,
        identity: &Identity,
        version: Option<u64>,
    ) -> Shared<BoxFuture<'static, Answer>> {
        let mut next = lock(&self.next);
        if let Some(batch) = next.as_ref()
            && let Some(answer) = batch.answer.upgrade()
            && let Some(request) = lock(&batch.request).as_mut()
            && request.identities.len() < BATCH_LIMIT
        {
            request.add(identity, namespace, version);
            return answer;
        }

        let request = Arc::new(Mutex::new(Some(ListRequest::new(identity, namespace, version))));
        let answer =
            list(Arc::clone(&self.fetch), Arc::clone(&self.turn), Arc::clone(&request)).boxed().shared();
        // Weak: a list is dropped and ends its turn when its last waiter is dropped.
        *next = answer.downgrade().map(|answer| Batch { request, answer });
        answer
    }
}

/// Waits for its turn, and lists for everyone who has joined until then.
async fn list(fetch: Fetch, turn: Arc<Semaphore>, request: Arc<Mutex<Option<ListRequest>>>) -> Answer {
    let _turn = turn.acquire_owned().await;
    let request = lock(&request).take();
    match request {
        Some(request) => fetch(request).await.map(Into::into),
        None => Ok(Arc::default()),
    }
}

/// Whether a text can be the value of a label, and therefore be in a selector with others.
fn is_label_value(text: &str) -> bool {
    let is_end = |letter: Option<u8>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    text.len() <= LABEL_LIMIT
        && is_end(text.bytes().next())
        && is_end(text.bytes().next_back())
        && text.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::{future::join_all, poll};
    use serde_json::json;

    use super::*;

    type Log = Arc<Mutex<Vec<ListRequest>>>;

    /// A list that records its requests and ends when there is a permit.
    fn shared_list() -> (SharedList, Log, Arc<Semaphore>) {
        let (log, permits) = (Log::default(), Arc::new(Semaphore::new(0)));
        let (sent, gate) = (Arc::clone(&log), Arc::clone(&permits));
        let list = SharedList::new(move |request| {
            lock(&sent).push(request.clone());
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(request.identities.iter().map(object).collect())
            }
            .boxed()
        });
        (list, log, permits)
    }

    fn object(identity: &Identity) -> Object {
        let labels = json!({ "vitistack.io/identity": identity });
        let metadata = json!({ "name": identity, "namespace": "apps", "labels": labels });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
    }

    fn identities(count: usize) -> Vec<Identity> {
        (0..count).map(|number| Identity::new(format!("machine-{number:03}"))).collect()
    }

    #[tokio::test]
    async fn machines_that_ask_at_the_same_time_share_one_list() {
        let (list, log, permits) = shared_list();
        let asking = identities(BATCH_LIMIT);
        let mut waiting =
            Box::pin(join_all(asking.iter().map(|identity| list.owned("apps", identity, None))));
        assert!(poll!(&mut waiting).is_pending());
        permits.add_permits(asking.len());
        for (identity, answer) in asking.iter().zip(waiting.await) {
            let answer = answer.unwrap();
            assert_eq!(answer.len(), 1);
            assert!(belongs_to(&answer[0], identity), "each machine receives its own objects");
        }
        assert_eq!(lock(&log).len(), 2, "the first list starts at once, all others share the second");
    }

    #[tokio::test]
    async fn a_list_that_has_started_does_not_answer_a_later_request() {
        let (list, log, permits) = shared_list();
        let asking = identities(3);
        let mut first = Box::pin(list.owned("apps", &asking[0], Some(7)));
        assert!(poll!(&mut first).is_pending());
        let mut second = Box::pin(list.owned("apps", &asking[1], Some(9)));
        let mut third = Box::pin(list.owned("other", &asking[2], Some(8)));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        assert_eq!(lock(&log).len(), 1);
        permits.add_permits(2);
        assert_eq!(first.await.unwrap().len(), 1);
        assert_eq!(
            (second.await.unwrap().len(), third.await.unwrap().len()),
            (1, 0),
            "its namespace is another"
        );
        let expected = ListRequest {
            identities: asking[1..].iter().cloned().collect(),
            namespaces: ["apps".to_owned(), "other".to_owned()].into(),
            version: Some(9),
        };
        assert_eq!(lock(&log)[1..], [expected]);
    }

    #[test]
    fn one_machine_that_needs_the_newest_state_is_enough() {
        let mut request = ListRequest::new(&Identity::new("a"), "apps", Some(7));
        request.add(&Identity::new("b"), "apps", None);
        request.add(&Identity::new("c"), "apps", Some(9));
        assert_eq!(request.version, None);
    }

    #[tokio::test]
    async fn an_abandoned_list_does_not_block_the_next_one() {
        let (list, log, permits) = shared_list();
        let asking = identities(2);
        let mut first = Box::pin(list.owned("apps", &asking[0], None));
        assert!(poll!(&mut first).is_pending());
        drop(first);
        permits.add_permits(1);
        assert_eq!(list.owned("apps", &asking[1], None).await.unwrap().len(), 1);
        assert_eq!(lock(&log).len(), 2);
    }

    #[tokio::test]
    async fn an_identity_that_cannot_be_a_label_is_listed_alone() {
        let (list, log, permits) = shared_list();
        permits.add_permits(2);
        let (odd, even) = (Identity::new("a, b"), Identity::new("b"));
        let (first, second) = futures::join!(list.owned("apps", &odd, None), list.owned("apps", &even, None));
        assert_eq!((first.unwrap().len(), second.unwrap().len()), (1, 1));
        assert_eq!(lock(&log).iter().map(|request| request.identities.len()).max(), Some(1));
    }
}
