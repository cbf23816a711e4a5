// SPDX-License-Identifier: BSD-3-Clause
// Lives by SIGSEGV (nil dereferences) and SIGURG (preemption of loops without calls) until the mover has done enough.
// With cgo, so that the loader runs and libraries can be preloaded.
//
//	faults REPORT WRITES EACH
package main

// int one(void) { return 1; }
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
)

type node struct{ value int }

func read(from *node) (value int, caught bool) {
	defer func() { caught = recover() != nil }()
	return from.value, false
}

// Spins without a call: only a signal stops it for the garbage collector.
func spin() {
	for i := 0; ; i++ {
	}
}

func main() {
	writes, _ := strconv.ParseUint(os.Args[2], 10, 64)
	each, _ := strconv.Atoi(os.Args[3])
	runtime.GOMAXPROCS(3)
	go spin()
	faults, preemptions := 0, 0
	for done := uint64(0); done < writes || preemptions < each; {
		for i := 0; i < 100; i++ {
			if _, caught := read(nil); !caught {
				fmt.Println("FAILED: a nil dereference was not caught")
				os.Exit(1)
			}
			faults += int(C.one())
		}
		runtime.GC() // stops the world, the spinning goroutine too
		preemptions++
		report, err := os.ReadFile(os.Args[1])
		if err != nil {
			panic(err)
		}
		done = binary.LittleEndian.Uint64(report)
	}
	fmt.Println("faults", faults+preemptions)
}
