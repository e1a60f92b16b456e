//! The objects that a command changes: named, or selected with --all or by label.

use std::fmt;

use clap::Args;
use kube::api::DynamicObject;
use snafu::ResultExt;

use super::{Error, NameObjectSnafu, WriteOutputSnafu};
use crate::{
    args::{self, AllNamespacesArgs},
    cluster::{
        Cluster, RequestError,
        change::{ChangeError, ConfirmSnafu, NameMachineSnafu, read},
        in_namespace,
        kinds::{KnownKind, MACHINE, MixSelectionSnafu, NameError, NameEverywhereSnafu, Named, Target},
        listing::{Selection, Wanted, list},
    },
    printing::{Console, write_line},
};

/// The objects to change; flatten it into a command that changes objects.
#[derive(Args, Clone, Debug)]
pub struct TargetsArgs {
    /// Objects, as KIND/NAME... or KIND NAME..., or kinds with --all or --selector; the default kind is machine
    #[arg(value_name = "KIND/NAME", required_unless_present_any = ["all", "selector"])]
    objects: Vec<String>,
    /// Select all objects of the kind in the namespace
    #[arg(long, conflicts_with = "selector")]
    all: bool,
    /// Select the objects of the kind that match a label selector, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Print what would change, after a dry run of all requests on the server
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    namespaces: AllNamespacesArgs,
}

impl TargetsArgs {
    /// Returns whether the objects are selected with --all or by label.
    pub fn is_selection(&self) -> bool {
        self.all || self.selector.is_some()
    }

    /// Returns what the result of a dry run ends with, as in kubectl.
    pub fn suffix(&self) -> &'static str {
        if self.dry_run { " (server dry run)" } else { "" }
    }

    /// Parses the objects, or the kinds to select from.
    pub fn read(&self) -> Result<Named, Error> {
        self.parse().context(NameObjectSnafu)
    }

    /// Parses Machines, for a command that changes no other kind.
    pub fn read_machines(&self) -> Result<Named, Error> {
        let named = self.read()?;
        let kinds: Vec<(&KnownKind, String)> = match &named {
            Named::Kinds(kinds) => kinds.iter().map(|kind| (kind, kind.resource.kind.clone())).collect(),
            Named::Objects(targets) => targets.iter().map(|target| (&target.kind, target.title())).collect(),
        };
        match kinds.into_iter().find(|(kind, _)| kind.resource.kind != "Machine") {
            Some((_, target)) => Ok(NameMachineSnafu { target }.fail()?),
            None => Ok(named),
        }
    }

    fn parse(&self) -> Result<Named, NameError> {
        if !self.is_selection() {
            if self.namespaces.all_namespaces {
                return NameEverywhereSnafu.fail();
            }
            return Ok(Named::Objects(Target::read_all(&self.objects)?));
        }

        let flag = if self.all { "--all" } else { "--selector" };
        match self.objects.as_slice() {
            [] => Ok(Named::Kinds(vec![KnownKind::find(MACHINE)?])),
            [kinds] => match KnownKind::find_all(kinds) {
                Ok(kinds) => Ok(Named::Kinds(kinds)),
                Err(_) => MixSelectionSnafu { flag }.fail(),
            },
            _ => MixSelectionSnafu { flag }.fail(),
        }
    }

    /// Reads the objects. An incomplete list is an error: a command must not change a part of a selection.
    pub async fn find(
        &self,
        cluster: &Cluster,
        named: Named,
    ) -> Result<Vec<(Target, DynamicObject)>, RequestError> {
        let mut found = Vec::new();
        match named {
            Named::Objects(targets) => {
                for target in targets {
                    let object = read(cluster, &target).await?;
                    found.push((target, object));
                }
            }
            Named::Kinds(kinds) => {
                for kind in kinds {
                    found.extend(self.select(cluster, &kind).await?);
                }
            }
        }
        Ok(found)
    }

    /// Reads the selected objects of a kind.
    async fn select(
        &self,
        cluster: &Cluster,
        kind: &KnownKind,
    ) -> Result<Vec<(Target, DynamicObject)>, RequestError> {
        let namespace = self.namespace(cluster).filter(|_| kind.is_namespaced);
        let selection =
            Selection { labels: self.selector.as_deref(), ..Selection::all(&kind.resource, namespace) };
        let mut objects = Vec::new();
        list(cluster, &selection, &Wanted::Whole, |object| objects.push(object))
            .await
            .map_err(|incomplete| incomplete.source)?;

        let decoded = objects.into_iter().map(|object| {
            let doing = format!("decode {}", kind.title_of(&object));
            let object: DynamicObject = serde_json::from_value(object)
                .map_err(|error| RequestError::Answer { doing, message: error.to_string() })?;
            let name = object.metadata.name.clone().unwrap_or_default();
            let found_in = object.metadata.namespace.clone().filter(|_| self.namespaces.all_namespaces);
            Ok((Target { found_in, ..Target::new(kind.clone(), name) }, object))
        });
        decoded.collect()
    }

    /// Returns the namespace of the objects; `None` for all.
    fn namespace<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        (!self.namespaces.all_namespaces).then_some(cluster.namespace.as_str())
    }

    /// Returns whether an object is to be changed. One that was named and cannot be changed is an error; one that was
    /// selected is skipped and reported.
    pub fn accepts(&self, check: Result<(), ChangeError>, console: &mut Console<'_>) -> Result<bool, Error> {
        match check {
            Ok(()) => Ok(true),
            Err(error) if self.is_selection() => {
                write_line(console.errors, format_args!("skipped: {error}")).context(WriteOutputSnafu)?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reports that nothing was selected.
    pub fn report_none(&self, cluster: &Cluster, console: &mut Console<'_>) -> Result<(), Error> {
        let namespace = in_namespace(self.namespace(cluster));
        writeln!(console.errors, "No objects found{namespace}.").context(WriteOutputSnafu)
    }
}

/// Asks for confirmation. Without a terminal the action, such as `adoption`, is refused.
pub fn confirm(
    action: &'static str,
    count: usize,
    question: fmt::Arguments<'_>,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    write!(console.errors, "{question} [y/N] ")
        .and_then(|()| console.errors.flush())
        .context(WriteOutputSnafu)?;
    let answer = args::answer();
    if answer.is_none() {
        writeln!(console.errors).context(WriteOutputSnafu)?;
    }
    match answer.as_deref().map(str::trim) {
        Some("y" | "Y" | "yes") => Ok(()),
        _ => Ok(ConfirmSnafu { action, count }.fail()?),
    }
}
