//! Why a Machine does not run, does not change, or does not go.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use vitistack_types::{
    conditions::{self, reason},
    labels,
    v1alpha1::{BUILT_IN_CLASSES, Machine, MachineProvider, PowerState},
};

use super::{
    Cause, Link, Standing, Story, World, annotation, command, datacenter, deletion, ended, name,
    not_looked_at, object,
    operators::{self, Acting},
    paused, provider, ready, refused, told,
};
use crate::{
    Redacted, Refusal,
    machine::{
        Desired, Location, Places, References, Snapshot, Verdict, decide, full_name, identity, is_let_go,
        locate, placement, resolve,
    },
};

pub fn explain(machine: &Machine, world: &World) -> Story {
    let own = object("Machine", &machine.metadata);
    let told_before = conditions_of(machine);
    let mut chain = vec![Link { object: own.clone(), standing: Standing::Well, says: intent(machine) }];
    if let Some(cause) = paused(&own, &machine.metadata, told_before) {
        return ended(chain, Some(cause));
    }
    let wanted = desired(machine, world);
    if let Some(cause) = refusal(machine, wanted.as_ref(), world) {
        chain.extend(missing(&cause, machine));
        return ended(chain, Some(cause));
    }
    if is_let_go(machine) {
        return ended(chain, deletion(&own, &machine.metadata));
    }
    let places = Places {
        providers: &world.providers.iter().collect::<Vec<_>>(),
        datacenters: &world.datacenters.iter().collect::<Vec<_>>(),
        is_own_cluster_offered: placement(machine) == Some(labels::OWN_CLUSTER)
            || matches!(operators::acting(labels::OWN_CLUSTER, world), Acting::Yes(_)),
    };
    chain.extend(unread_secret(machine, world));
    let place = match locate(machine, &places) {
        Location::Nowhere(refusal) => {
            let cause = refused(own, refusal, told_before);
            chain.extend(missing(&cause, machine));
            return ended(chain, Some(cause));
        }
        Location::Undecided => {
            let (links, cause) = undecided(&own, machine, world);
            chain.extend(links);
            return ended(chain, cause);
        }
        Location::At(place) => place,
    };
    if machine.spec.datacenter_ref.is_some() {
        let says = annotation(&machine.metadata, labels::PLACEMENT_REASON).unwrap_or("placed it");
        let reference = machine.spec.datacenter_ref.as_ref();
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        let named = reference.map(|reference| full_name(reference, namespace)).unwrap_or_default();
        chain.push(Link {
            object: format!("Datacenter {named}"),
            standing: Standing::Well,
            says: says.to_owned(),
        });
    }
    let provider = world.providers.iter().find(|provider| name(&provider.metadata) == place);
    let (links, cause) = placed(&own, machine, &place, provider, world);
    chain.extend(links);
    ended(chain, cause)
}

fn conditions_of(machine: &Machine) -> &[Condition] {
    machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// What the Machine asks for, in short.
fn intent(machine: &Machine) -> String {
    let spec = &machine.spec;
    let power = match (&machine.metadata.deletion_timestamp, spec.power_state) {
        (Some(_), _) => "shall go",
        (None, Some(PowerState::Stopped)) => "shall be off",
        (None, _) => "shall run",
    };
    let template = spec.template.as_ref().map(|template| format!(", template {template}"));
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let place = match (&spec.provider_ref, &spec.datacenter_ref) {
        (Some(provider), _) => format!(", on MachineProvider {}", full_name(provider, namespace)),
        (None, Some(datacenter)) => format!(", in Datacenter {}", full_name(datacenter, namespace)),
        (None, None) => ", on the default provider".to_owned(),
    };
    format!("{power}{}{place}", template.unwrap_or_default())
}

/// What the Machine shall be, from what was read. A Secret that was not read does not count as missing.
pub fn desired(machine: &Machine, world: &World) -> Result<Desired, Refusal> {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &machine.spec;
    let class = world.classes.iter().find(|class| class.metadata.name == spec.template).cloned();
    let is_attached =
        |name: Option<&String>| spec.networks.iter().any(|interface| Some(&interface.network_name) == name);
    let networks = world
        .networks
        .iter()
        .filter(|network| network.metadata.namespace.as_deref() == Some(namespace))
        .filter(|network| is_attached(network.metadata.name.as_ref()))
        .filter_map(|network| Some((network.metadata.name.clone()?, network.clone())))
        .collect();
    let reference = spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
    let known = reference.and_then(|reference| world.secrets.get(&format!("{namespace}/{}", reference.name)));
    let secret = match (reference, known) {
        (Some(_), Some(keys)) => keys
            .as_ref()
            .map(|keys| keys.iter().map(|key| (key.clone(), Redacted::new(String::new()))).collect()),
        (Some(reference), None) => Some([(reference.key.clone(), Redacted::new(String::new()))].into()),
        (None, _) => None,
    };
    resolve(machine, &References { class, networks, secret })
}

/// Another Machine that claims the same identity.
fn twin(machine: &Machine, world: &World) -> Option<String> {
    let own = identity(machine);
    world
        .machines
        .iter()
        .find(|other| other.metadata.uid != machine.metadata.uid && identity(other) == own)
        .map(|other| name(&other.metadata))
}

/// What the decision about the Machine says before any provider is asked: held, or lacking something.
fn refusal(machine: &Machine, desired: Result<&Desired, &Refusal>, world: &World) -> Option<Cause> {
    let twin = twin(machine, world);
    let refusal = blocked(machine, desired, twin.as_deref())?;
    let own = object("Machine", &machine.metadata);
    let is_restored = refusal.reason == reason::IDENTITY_HELD && twin.is_none();
    let to_do = is_restored.then(|| format!("run `{}`", command("adopt", &own)));
    Some(Cause { to_do, ..refused(own, refusal, conditions_of(machine)) })
}

/// Why nothing is done about the Machine whatever its provider has.
pub fn blocked(
    machine: &Machine,
    desired: Result<&Desired, &Refusal>,
    twin: Option<&str>,
) -> Option<Refusal> {
    let not_asked = Refusal::new("", "");
    let snapshot = Snapshot {
        machine,
        desired,
        observed: Err(&not_asked),
        twin,
        placement: placement(machine).unwrap_or_default(),
        no_room: None,
        leaving: None,
    };
    match decide(&snapshot).verdict {
        Verdict::Blocked(refusal) => Some(refusal),
        _ => None,
    }
}

/// The object that a Machine names and that is not there.
fn missing(cause: &Cause, machine: &Machine) -> Option<Link> {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &machine.spec;
    let secret = || spec.cloud_init.as_ref()?.secret_ref.as_ref();
    let (object, says) = match cause.reason.as_str() {
        reason::TEMPLATE_NOT_FOUND => {
            let name = spec.template.as_ref().filter(|name| !BUILT_IN_CLASSES.contains(&name.as_str()))?;
            (format!("MachineClass {name}"), "is not there".to_owned())
        }
        reason::SECRET_NOT_FOUND => {
            (format!("Secret {namespace}/{}", secret()?.name), "is not there".to_owned())
        }
        reason::SECRET_KEY_NOT_FOUND => {
            (format!("Secret {namespace}/{}", secret()?.name), format!("has no key {:?}", secret()?.key))
        }
        reason::NETWORK_CONFIGURATION_NOT_FOUND => {
            let named = |network: &&str| cause.message.contains(&format!("{network:?}"));
            let name = spec.networks.iter().map(|one| one.network_name.as_str()).find(named)?;
            (format!("NetworkConfiguration {namespace}/{name}"), "is not there".to_owned())
        }
        reason::PROVIDER_NOT_FOUND => {
            let named = || Some(full_name(spec.provider_ref.as_ref()?, namespace));
            let name = placement(machine).map(ToOwned::to_owned).or_else(named)?;
            (format!("MachineProvider {name}"), "is not there".to_owned())
        }
        reason::DATACENTER_NOT_FOUND => {
            let name = full_name(spec.datacenter_ref.as_ref()?, namespace);
            (format!("Datacenter {name}"), "is not there".to_owned())
        }
        _ => return None,
    };
    Some(Link { object, standing: Standing::Blocking, says })
}

/// The Secret that a Machine names, if it could not be read.
fn unread_secret(machine: &Machine, world: &World) -> Option<Link> {
    let secret = &machine.spec.cloud_init.as_ref()?.secret_ref.as_ref()?.name;
    let name = format!("{}/{secret}", machine.metadata.namespace.as_deref().unwrap_or_default());
    (!world.secrets.contains_key(&name)).then(|| Link {
        object: format!("Secret {name}"),
        standing: Standing::Unknown,
        says: "it could not be read".to_owned(),
    })
}

/// A Machine whose Datacenter has not decided yet.
fn undecided(own: &str, machine: &Machine, world: &World) -> Story {
    let told_before = conditions_of(machine);
    let datacenter = match datacenter::named(machine, world) {
        None => return (Vec::new(), Some(waiting(own, machine, "an operator to place it", world))),
        Some(Err(refusal)) => {
            let cause = refused(own.to_owned(), refusal, told_before);
            return (missing(&cause, machine).into_iter().collect(), Some(cause));
        }
        Some(Ok(datacenter)) => datacenter,
    };
    let (mut links, cause) = datacenter::obstacle(datacenter, machine, world);
    let (operator, absent) = operators::look(operators::DATACENTER, is_looked_at(machine), world);
    let is_absent = absent.is_some();
    if cause.is_none() || is_absent {
        links.push(operator);
    }
    let place = object("Datacenter", &datacenter.metadata);
    let cause =
        cause.or(absent).unwrap_or_else(|| waiting(own, machine, &format!("{place} to place it"), world));
    (links, Some(cause))
}

/// A Machine that is on its provider, or is to be made there.
fn placed(
    own: &str,
    machine: &Machine,
    place: &str,
    provider: Option<&MachineProvider>,
    world: &World,
) -> Story {
    let operator = provider.map_or(labels::OWN_CLUSTER, |provider| operators::of_type(provider.spec.type_));
    let (operator_link, absent) = operators::look(operator, is_looked_at(machine), world);
    let problem = provider.and_then(|provider| provider::problem(provider, world));
    let provider_link = match provider {
        Some(provider) => Link {
            object: object("MachineProvider", &provider.metadata),
            standing: Standing::unless(problem.is_some()),
            says: problem.as_ref().map_or_else(
                || format!("type {operator}, can be used"),
                |problem| format!("{}: {}", problem.reason, problem.message),
            ),
        },
        None => Link {
            object: format!("the cluster itself ({place})"),
            standing: Standing::Well,
            says: "takes Machines while there is no MachineProvider".to_owned(),
        },
    };
    let mut links = vec![provider_link, operator_link];
    if is_settled(machine) {
        // What runs goes on running; what is wrong around it shows in the chain.
        links.retain(|link| link.standing == Standing::Blocking);
        return (links, lagging(own, machine));
    }
    links.extend(aspects(own, machine));
    let waits_for = format!("the operator {operator} to look at it");
    let cause = problem.or(absent).unwrap_or_else(|| waiting(own, machine, &waits_for, world));
    (links, Some(cause))
}

/// What else the operator told: disks, networks, the real machine.
fn aspects(own: &str, machine: &Machine) -> Vec<Link> {
    let aspects = [conditions::STORAGE_READY, conditions::NETWORK_READY, conditions::VIRTUAL_MACHINE_READY];
    conditions_of(machine)
        .iter()
        .filter(|condition| aspects.contains(&condition.type_.as_str()) && condition.status == "False")
        .map(|condition| Link {
            object: format!("{} of {own}", condition.type_),
            standing: Standing::Blocking,
            says: format!("{}: {}", condition.reason, condition.message),
        })
        .collect()
}

/// Whether the Machine is as it shall be, and its operator has seen the spec as it is now.
fn is_settled(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_none()
        && !is_unseen(machine)
        && conditions::is_true(conditions_of(machine), conditions::READY)
}

/// Whether an operator has told of the Machine as it is now.
fn is_looked_at(machine: &Machine) -> bool {
    ready(conditions_of(machine)).is_some() && !is_unseen(machine)
}

fn is_unseen(machine: &Machine) -> bool {
    let seen = machine.status.as_ref().and_then(|status| status.observed_generation);
    seen < machine.metadata.generation
}

/// A Machine that runs without everything that its spec says.
fn lagging(own: &str, machine: &Machine) -> Option<Cause> {
    let is_lagging =
        |condition: &&Condition| condition.type_ == conditions::UP_TO_DATE && condition.status == "False";
    conditions_of(machine).iter().find(is_lagging).map(|condition| {
        let needs_restart = condition.reason == reason::RESTART_REQUIRED;
        let to_do = needs_restart.then(|| format!("run `{}`", command("power restart", own)));
        Cause { to_do, ..told(own.to_owned(), condition) }
    })
}

/// What the operator last told, or that it has not looked yet.
fn waiting(own: &str, machine: &Machine, waits_for: &str, world: &World) -> Cause {
    let Some(condition) = ready(conditions_of(machine)) else {
        return not_looked_at(own, &machine.metadata, waits_for);
    };
    if is_unseen(machine) || is_outdated(condition, machine, world) {
        let message =
            format!("what was last told is no longer so ({}: {})", condition.reason, condition.message);
        return Cause { message, waits_for: Some(waits_for.to_owned()), ..told(own.to_owned(), condition) };
    }
    let is_under_way = [reason::CREATING, reason::UPDATING, reason::STARTING, reason::DELETING]
        .contains(&condition.reason.as_str());
    let goes_on = condition.message.strip_prefix("waiting: ").filter(|_| is_under_way);
    Cause { waits_for: goes_on.map(ToOwned::to_owned), ..told(own.to_owned(), condition) }
}

/// Whether a condition names something as missing that is there by now. Only called when nothing is missing.
fn is_outdated(condition: &Condition, machine: &Machine, world: &World) -> bool {
    let decided_from_objects = [
        reason::TEMPLATE_NOT_FOUND,
        reason::NETWORK_CONFIGURATION_NOT_FOUND,
        reason::IDENTITY_HELD,
        reason::PAUSED,
        reason::PROVIDER_NOT_FOUND,
        reason::DATACENTER_NOT_FOUND,
        reason::REFERENCE_NOT_PERMITTED,
        reason::NO_DEFAULT_PROVIDER,
        reason::SEVERAL_DEFAULT_PROVIDERS,
    ];
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let secret = machine.spec.cloud_init.as_ref().and_then(|cloud_init| cloud_init.secret_ref.as_ref());
    let is_secret_known =
        secret.is_some_and(|secret| world.secrets.contains_key(&format!("{namespace}/{}", secret.name)));
    let of_secrets = [reason::SECRET_NOT_FOUND, reason::SECRET_KEY_NOT_FOUND];
    let told = condition.reason.as_str();
    decided_from_objects.contains(&told) || (is_secret_known && of_secrets.contains(&told))
}
