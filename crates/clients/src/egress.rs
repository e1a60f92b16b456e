//! Where requests may go that a tenant asks for: the one judgment of hosts, for kubeconfigs and for disk images.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Top-level names of services in a cluster, and of the host itself. They never reach what a tenant may reach.
const LOCAL_NAMES: [&str; 4] = ["svc", "local", "localhost", "localdomain"];

/// The generic top-level domains that images commonly come from. Pods shorten `vault.vault.svc.cluster.local` to
/// `vault.vault`, and clouds serve the credentials of a machine below `internal`: a name that ends in anything else than a
/// domain that is known to be public is taken for one of a private network.
const GENERIC_DOMAINS: [&str; 32] = [
    "academy",
    "agency",
    "app",
    "arpa",
    "biz",
    "blog",
    "build",
    "center",
    "cloud",
    "com",
    "company",
    "dev",
    "digital",
    "edu",
    "engineering",
    "gov",
    "info",
    "int",
    "mil",
    "net",
    "network",
    "online",
    "org",
    "page",
    "site",
    "software",
    "solutions",
    "systems",
    "tech",
    "technology",
    "tools",
    "xyz",
];

/// The top-level domains of countries.
const COUNTRY_DOMAINS: &str = "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bv bw by bz ca \
    cc cd cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr \
    ga gb gd ge gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm \
    jo jp ke kg kh ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq \
    mr ms mt mu mv mw mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa \
    re ro rs ru rw sa sb sc sd se sg sh si sj sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn \
    to tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw";

/// Where a host is, as far as its text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere on the internet.
    Public,
    /// In a network of its own: a private address, or a name without a public domain.
    Private,
    /// The host itself, or a service of the cluster.
    Local,
    /// A link-local, unspecified, multicast or broadcast address. On link-local addresses clouds serve the credentials of
    /// the machine that a process runs on.
    LinkLocal,
    /// Not a host name, and not an address as it is commonly written.
    Unclear,
}

/// Judges a host: a name, an IPv4 address, or an IPv6 address with or without brackets and zone. Nothing is resolved.
#[must_use]
pub fn reach(host: &str) -> Reach {
    if let Some(address) = address_of(host) {
        return reach_of(address);
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if !name.split('.').all(|label| !label.is_empty() && label.chars().all(is_letter)) {
        return Reach::Unclear;
    }
    let top = name.rsplit('.').next().unwrap_or_default();
    // Resolvers also accept 2852039166 and 0xa9.254.169.254, and no domain ends in a number.
    if top.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Reach::Unclear;
    }
    if LOCAL_NAMES.contains(&top) {
        return Reach::Local;
    }
    if name.contains('.') && is_public_domain(top) { Reach::Public } else { Reach::Private }
}

/// Whether a top-level domain is known to be public. Those in another alphabet are.
fn is_public_domain(top: &str) -> bool {
    top.starts_with("xn--")
        || GENERIC_DOMAINS.contains(&top)
        || COUNTRY_DOMAINS.split_ascii_whitespace().any(|country| country == top)
}

/// Returns the address that a host is written as, without brackets and zone.
#[must_use]
pub fn address_of(host: &str) -> Option<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let without_zone = bare.split('%').next().unwrap_or(bare);
    without_zone.parse().ok()
}

fn reach_of(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_of_v4(address),
        IpAddr::V6(address) if is_served_link_locally(address) => Reach::LinkLocal,
        IpAddr::V6(address) => embedded(address).map_or_else(|| reach_of_v6(address), reach_of_v4),
    }
}

/// Whether the server of a Teredo address, which forwards its packets, has a link-local address.
fn is_served_link_locally(address: Ipv6Addr) -> bool {
    let [first, second, high, low, ..] = address.segments();
    let server = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    [first, second] == [0x2001, 0] && reach_of_v4(server) == Reach::LinkLocal
}

fn reach_of_v4(address: Ipv4Addr) -> Reach {
    let [first, second, ..] = address.octets();
    if address.is_link_local() || address.is_broadcast() || address.is_multicast() || first == 0 {
        Reach::LinkLocal
    } else if address.is_loopback() {
        Reach::Local
    } else if address.is_private() || (first == 100 && second & 0b1100_0000 == 64) {
        Reach::Private
    } else {
        Reach::Public
    }
}

fn reach_of_v6(address: Ipv6Addr) -> Reach {
    let [first, second, third, ..] = address.segments();
    // The addresses of 64:ff9b:1::/48 contain others in a form that each network chooses.
    let is_translated = [first, second, third] == [0x64, 0xff9b, 1];
    if address.is_unicast_link_local() || address.is_unspecified() || address.is_multicast() || is_translated
    {
        Reach::LinkLocal
    } else if address.is_loopback() {
        Reach::Local
    } else if address.is_unique_local() || first & 0xffc0 == 0xfec0 {
        Reach::Private
    } else {
        Reach::Public
    }
}

/// Returns the IPv4 address that a packet to this IPv6 address is sent to in the end: the address is mapped, compatible,
/// NAT64, 6to4 or Teredo.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let [_, high, low, .., last_high, last_low] = parts;
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            Some(pair(last_high, last_low))
        }
        [0x2002, ..] => Some(pair(high, low)),
        [0x2001, 0, ..] => Some(pair(!last_high, !last_low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn all_are(reach_expected: Reach, hosts: &[&str]) {
        for host in hosts {
            assert_eq!(reach(host), reach_expected, "{host}");
        }
    }

    #[test]
    fn link_local_addresses_are_found_in_every_spelling() {
        all_are(
            Reach::LinkLocal,
            &[
                "169.254.169.254",
                "[fe80::1]",
                "fe80::1%eth0",
                "[fe80::1%25eth0]",
                "[::ffff:169.254.169.254]",
                "[::ffff:a9fe:a9fe]",
                "[::169.254.169.254]",
                "[::ffff:0:169.254.169.254]",
                "[64:ff9b::169.254.169.254]",
                "[64:ff9b::a9fe:a9fe]",
                "[64:ff9b:1::a9fe:a9fe]",
                "[2002:a9fe:a9fe::1]",
                "[2001:0:1:2:3:4:5601:5601]",
                "[2001:0:a9fe:a9fe::1]",
                "0.0.0.0",
                "0.1.2.3",
                "[::]",
                "224.0.0.1",
                "[ff02::1]",
                "255.255.255.255",
            ],
        );
    }

    #[test]
    fn the_host_itself_and_services_of_the_cluster_are_local() {
        all_are(
            Reach::Local,
            &[
                "127.0.0.1",
                "127.1.2.3",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "[64:ff9b::7f00:1]",
                "localhost",
                "LocalHost.",
                "metadata.localhost",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "printer.local",
            ],
        );
    }

    #[test]
    fn private_networks_are_not_public() {
        all_are(
            Reach::Private,
            &[
                "10.0.0.1",
                "172.16.0.1",
                "192.168.1.1",
                "100.64.0.1",
                "[fd00::1]",
                "[fec0::1]",
                "[2002:0a00:0001::]",
                "kubernetes",
                "kubernetes.default",
                "etcd.kube-system",
                "vault.vault",
                "grafana.monitoring",
                "db-0.db.victim",
                "mysql.db",
                "metadata.google.internal",
            ],
        );
    }

    #[test]
    fn other_spellings_of_an_address_are_not_hosts() {
        all_are(
            Reach::Unclear,
            &[
                "2852039166",
                "0xa9.254.169.254",
                "0x7f000001",
                "rack.1",
                "a..b",
                "",
                "a%2fb",
                "exämple.org",
                "a\\b",
            ],
        );
    }

    #[test]
    fn public_hosts_are_public() {
        all_are(
            Reach::Public,
            &[
                "images.example.com",
                "198.51.100.7",
                "[2001:db8::1]",
                "example.xn--p1ai",
                "quay.io",
                "EXAMPLE.ORG.",
            ],
        );
    }
}
