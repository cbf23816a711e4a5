# SPDX-License-Identifier: BSD-3-Clause
# Tests of CTest with RDMA devices and no hardware. Copy this file and run_pair.sh into a project, and include it:
#   faultline_add_test(NAME one COMMAND program arguments)
#     one process with two devices, which are joined: faultline0 and faultline1
#   faultline_add_pair_test(NAME two SERVER program arguments CLIENT program arguments)
#     two processes with a device faultline0 each. They reach each other, by TCP too, at 198.18.0.1 (the server) and 198.18.0.2.
#     An argument PORT becomes a free TCP port, the same for both
# A program is a target or a path. The option TIMEOUT has the seconds after which a test fails, by default 120.
find_program(FAULTLINE_RUN faultline-run DOC "the program that starts a verbs program on Faultline devices")
set(_faultline_folder ${CMAKE_CURRENT_LIST_DIR})

# Sets `result` to the command, with the file of a target in place of its name.
function(_faultline_command result program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  set(${result} ${program} ${ARGN} PARENT_SCOPE)
endfunction()

function(_faultline_properties name timeout)
  if(NOT timeout)
    set(timeout 120)
  endif()
  # Status 77 is a skipped test, as in Automake and Meson.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
  if(NOT FAULTLINE_RUN)
    message(STATUS "${name} is disabled: there is no faultline-run in PATH")
    set_tests_properties(${name} PROPERTIES DISABLED TRUE)
  endif()
endfunction()

function(faultline_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "COMMAND")
  set(devices ${CMAKE_CURRENT_BINARY_DIR}/two_devices.toml)
  set(text "")
  foreach(device IN ITEMS "0;198.18.0.1/24;a" "1;198.18.0.2/24;b")
    list(GET device 0 number)
    list(GET device 1 ip)
    list(GET device 2 side)
    string(APPEND text "[[device]]\nname = \"faultline${number}\"\nip = \"${ip}\"\n"
      "[device.port]\nkind = \"ring\"\nwire = \"pair\"\nside = \"${side}\"\n")
  endforeach()
  file(WRITE ${devices} ${text})
  _faultline_command(command ${arg_COMMAND})
  add_test(NAME ${arg_NAME} COMMAND ${FAULTLINE_RUN} --config ${devices} -- ${command})
  _faultline_properties(${arg_NAME} "${arg_TIMEOUT}")
endfunction()

function(faultline_add_pair_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SERVER;CLIENT")
  _faultline_command(server ${arg_SERVER})
  _faultline_command(client ${arg_CLIENT})
  add_test(NAME ${arg_NAME} COMMAND ${_faultline_folder}/run_pair.sh ${FAULTLINE_RUN} ${server} : ${client})
  _faultline_properties(${arg_NAME} "${arg_TIMEOUT}")
endfunction()
