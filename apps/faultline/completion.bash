# SPDX-License-Identifier: BSD-3-Clause
# Completion of Faultline's programs in bash. The options are those that a program's --help lists, so this file names none.
# shellcheck shell=bash

# Prints the long options of a command.
_faultline_options() {
  "$@" --help 2>/dev/null </dev/null | sed -nE 's/^ +(-[a-zA-Z],)?(--[a-z][a-z-]*).*/\2/p'
}

# Prints the names of this user's wires.
_faultline_wires() {
  local file
  for file in "${XDG_RUNTIME_DIR:-/nonexistent}"/faultline/*.control /{tmp,dev/shm}/faultline-"$UID"/*.control; do
    if [ -e "$file" ]; then
      file=${file##*/}
      printf '%s\n' "${file%.control}"
    fi
  done
}

# Completes the arguments of the program "$1", of which COMP_WORDS has the first at index $2.
_faultline_arguments() {
  local program=$1 first=$2 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} index
  case $before in
    --config | --trouble) mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$word"; compgen -d -- "$word"); return ;;
    --wire | --status) mapfile -t COMPREPLY < <(compgen -W "$(_faultline_wires)" -- "$word"); return ;;
    --uplink) mapfile -t COMPREPLY < <(compgen -W "tap: af_packet: af_xdp: pci: vhost: virtio_user:" -- "$word"); return ;;
    --op) mapfile -t COMPREPLY < <(compgen -W "write write_imm read send ud_send" -- "$word"); return ;;
    --congestion) mapfile -t COMPREPLY < <(compgen -W "none dcqcn swift" -- "$word"); return ;;
    --format) mapfile -t COMPREPLY < <(compgen -W "csv json" -- "$word"); return ;;
    --log) mapfile -t COMPREPLY < <(compgen -W "trace debug info warn err critical off" -- "$word"); return ;;
  esac
  for ((index = first; index < COMP_CWORD; ++index)); do
    if [ "${COMP_WORDS[index]}" = -- ]; then
      mapfile -t COMPREPLY < <(compgen -W "$(_faultline_options "$program" --)" -- "$word")
      return
    fi
  done
  case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_faultline_options "$program")" -- "$word") ;;
    # The program that faultline-run starts, and the file of faultline-sim.
    *) if [ "${program##*/}" = faultline-sim ]; then
         mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$word"; compgen -d -- "$word")
       elif [ "${program##*/}" = faultline-run ]; then mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word"); fi ;;
  esac
}

_faultline() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[0]} second=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "${command##*/}" != faultline ]; then
    _faultline_arguments "$command" 1
  elif [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "run perf sim switch replay info doctor export top story trouble explore $(_faultline_options "$command")" -- "$word")
  else
    case $second in
      replay)
        if [ "$COMP_CWORD" -eq 2 ]; then
          mapfile -t COMPREPLY < <(compgen -f -- "$word")
        else
          _faultline_arguments "$command-run" 3
        fi
        ;;
      run | perf | sim | switch) _faultline_arguments "$command-$second" 2 ;;
      info | doctor | export | top | trouble)
        case ${COMP_WORDS[COMP_CWORD - 1]} in
          --config | --wire) _faultline_arguments "$command" 2 ;;
          *) mapfile -t COMPREPLY < <(compgen -W "$(_faultline_options "$command" "$second")" -- "$word") ;;
        esac
        ;;
      explore)
        case ${COMP_WORDS[COMP_CWORD - 1]} in
          --wire) _faultline_arguments "$command" 2; return ;;
          --config | --trouble | --test) mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$word"; compgen -d -- "$word"); return ;;
          --) mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word"); return ;;
        esac
        case $word in
          -*) mapfile -t COMPREPLY < <(compgen -W "$(_faultline_options "$command" "$second")" -- "$word") ;;
          *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        esac
        ;;
      story)
        case $word in
          -*) mapfile -t COMPREPLY < <(compgen -W "$(_faultline_options "$command" "$second")" -- "$word") ;;
          *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        esac
        ;;
    esac
  fi
}
complete -o filenames -F _faultline faultline faultline-run faultline-perf faultline-sim faultline-switch
