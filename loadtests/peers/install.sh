#!/bin/sh
# Installs what `make bench` compares with: Kannel, RabbitMQ and Redis from Debian, Jasmin from PyPI into .peers/.
#
# Nothing is started, now or at boot: while packages are set up a policy-rc.d of ours answers "not now", and the bench
# runs its own processes on ports of loopback and ends them. Whatever cannot be installed is only told: the bench then
# says "not here" in that row. Undo: apt-get purge kannel redis-server rabbitmq-server; rm -r .peers
set -u

jasmin_version=0.11.1
here=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
place="$here/.peers"
mkdir -p "$place"

told() { printf '%s\n' "peers: $*"; }

missing=""
[ -x /usr/sbin/bearerbox ] || missing="$missing kannel"

command -v redis-server >/dev/null || missing="$missing redis-server"
[ -d /usr/lib/rabbitmq ] || missing="$missing rabbitmq-server"

if [ -z "$missing" ]; then
    told "Kannel, Redis and RabbitMQ are here"
elif ! command -v apt-get >/dev/null; then
    told "this is no Debian: install$missing by hand, or leave those rows empty"
elif [ "$(id -u)" -ne 0 ]; then
    told "not root: run  sudo $0  once for$missing, or leave those rows empty"
else
    told "installing$missing (log: $place/apt.log)"
    guard=/usr/sbin/policy-rc.d
    own_guard=""
    if [ ! -e "$guard" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$guard" && chmod 755 "$guard" && own_guard=yes
    fi
    # Even where no policy-rc.d is asked, runlevel 1 starts no service.
    if ! { apt-get update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends $missing; } >"$place/apt.log" 2>&1; then
        told "apt-get failed; its last lines:"
        tail -n 5 "$place/apt.log"
    fi
    [ -z "$own_guard" ] || rm -f "$guard"
fi

jasmin="$place/jasmin"
if [ -x "$jasmin/bin/jasmind.py" ]; then
    told "Jasmin is here"
else
    # It wants Python 3.11; its own requirements pin the rest.
    python=$(command -v python3.11 || command -v python3)
    told "installing Jasmin $jasmin_version with $python (log: $place/pip.log)"
    if ! { "$python" -m venv "$jasmin" && "$jasmin/bin/pip" install --disable-pip-version-check \
        "jasmin==$jasmin_version"; } >"$place/pip.log" 2>&1; then
        told "pip failed; its last lines:"
        tail -n 5 "$place/pip.log"
        rm -rf "$jasmin"
    fi
fi

if command -v gcc >/dev/null; then
    told "gcc is here: carrier, client and callback sink of the bench are built from loadtests/peers/*.c"
else
    told "no gcc: the bench uses its Python carrier and client, which are slower; the table says so"
fi
exit 0
