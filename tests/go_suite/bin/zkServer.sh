#!/bin/sh
# What go-zookeeper's own tests start as a server: `zkServer.sh start-foreground zoo.cfg`.
exec "$(dirname "$0")/../../../.venv/bin/python" "$(dirname "$0")/../server.py" "$2"
