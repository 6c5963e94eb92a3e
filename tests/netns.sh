# shellcheck shell=bash disable=SC2154 # $tmp is tap.sh's
# netns.sh : hosts on one machine, each with an address of its own, over one bridge.  Source it after tap.sh; root only.
#
#     start_hosts a b          # or the script is skipped, with the reason
#     on a COMMAND...          # as on that host, 10.231.8.11; b is 10.231.8.12
#     start_on b NAME COMMAND...
#     link b down              # its cable is out
#     link b up
#
# Files and their sockets are shared: what is to be reached over the network only needs another path in its k3.conf.

netns_hosts=()
netns_name=k3t$$

start_hosts() {
    local host address=10
    [[ $(id -u) == 0 ]] || skip_all "network namespaces need root"
    need ip
    ip netns add "$netns_name-switch" 2>"$tmp/netns" || skip_all "no network namespaces here: $(cat "$tmp/netns")"
    at_exit netns_stop
    netns_hosts=(switch)
    ip -n "$netns_name-switch" link add bridge type bridge 2>"$tmp/netns" || skip_all "no bridge here: $(cat "$tmp/netns")"
    ip -n "$netns_name-switch" link set bridge up
    for host; do
        address=$((address + 1))
        netns_hosts+=("$host")
        netns_add "$host" "$address" || skip_all "a host could not be made"
    done
}
netns_add() {
    ip netns add "$netns_name-$1" &&
        ip -n "$netns_name-switch" link add "$1" type veth peer name eth0 netns "$netns_name-$1" &&
        ip -n "$netns_name-switch" link set "$1" master bridge &&
        ip -n "$netns_name-switch" link set "$1" up &&
        on "$1" ip address add "10.231.8.$2/24" dev eth0 &&
        on "$1" ip link set lo up &&
        on "$1" ip link set eth0 up
}
netns_stop() {
    local host
    for host in "${netns_hosts[@]}"; do
        ip netns del "$netns_name-$host"
    done
}

on() {
    local host=$1
    shift
    ip netns exec "$netns_name-$host" "$@"
}

# start_on HOST NAME COMMAND... : start there; its pid is the command's own.
start_on() {
    local host=$1 name=$2
    shift 2
    start "$name" ip netns exec "$netns_name-$host" "$@"
}

link() { ip -n "$netns_name-switch" link set "$1" "$2"; }
