// SPDX-License-Identifier: BSD-3-Clause
// Lives by SIGSEGV (V8's traps for WebAssembly out of bounds) until the mover has done enough.
//   node faults.js REPORT WRITES EACH
"use strict";
const fs = require("fs");

// (module (memory 1) (func (export "f") (param i32) (result i32) local.get 0 i32.load))
const bytes = new Uint8Array([
  0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, 0x01, 0x06, 0x01, 0x60, 0x01, 0x7f, 0x01, 0x7f, 0x03, 0x02, 0x01, 0x00,
  0x05, 0x03, 0x01, 0x00, 0x01, 0x07, 0x05, 0x01, 0x01, 0x66, 0x00, 0x00, 0x0a, 0x09, 0x01, 0x07, 0x00, 0x20, 0x00, 0x28,
  0x02, 0x00, 0x0b,
]);
const { f } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
const [report, writes, each] = [process.argv[2], BigInt(process.argv[3]), Number(process.argv[4])];

let faults = 0;
while (faults < each * 100 || fs.readFileSync(report).readBigUInt64LE(0) < writes) {
  for (let i = 0; i < 100; ++i) {
    let caught = false;
    try {
      f(0x10000 + 4096 * i);
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      caught = true;
    }
    if (!caught) throw new Error("a load out of bounds was not trapped");
    ++faults;
  }
  if (f(16) !== 0) throw new Error("a load in bounds");
}
console.log("faults " + faults);
