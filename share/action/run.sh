#!/usr/bin/env bash
# Runs a program over an emulated network. Fails as the program does, and with status 124 if it takes longer than it may.
# What action.yml takes comes in the environment: PROGRAM, LIMIT, and a network as LINK (and LINK_UP), PROFILE or SCENARIO.
set -uo pipefail

fail() {
    echo "::error title=tollway::$1"
    exit "${2:-2}"
}

[ -n "${PROGRAM:-}" ] || fail 'no program: set `run`'
[ -n "${LIMIT:-}" ] || fail 'no limit: set `within`, such as 30s'
network=()
[ -n "${LINK:-}" ] && network+=("--link=$LINK")
[ -n "${LINK_UP:-}" ] && network+=("--link-up=$LINK_UP")
[ -n "${PROFILE:-}" ] && network+=("--profile=$PROFILE")
[ -n "${SCENARIO:-}" ] && network+=("$SCENARIO")
[ ${#network[@]} -gt 0 ] || fail 'no network: set `link`, `profile` or `scenario`'
[ -n "${SERVE:-}" ] && network+=("--serve=$SERVE")

tollway exec "${network[@]}" --seed "${SEED:-1}" --timeout "$LIMIT" -- bash -c "$PROGRAM"
status=$?
case $status in
    0) ;;
    124) fail "the program took longer than $LIMIT on this network" 124 ;;
    125) fail 'the network could not be set up' 125 ;;
    *) fail "the program failed with status $status" "$status" ;;
esac
