// SPDX-License-Identifier: BSD-3-Clause
// Lives by SIGSEGV (null checks, stack overflow) and SIGBUS (a truncated mapped file) until the mover has done enough.
//   java Faults.java REPORT FILE WRITES EACH
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

public class Faults {
  int value = 1;

  static int read(Faults from) {
    return from.value;
  }
  static int depth(int n) {
    return depth(n + 1) + 1;
  }

  static int nullChecks() {
    int caught = 0;
    for (int i = 0; i < 2000; ++i) {
      try {
        read(i % 2 == 0 ? null : new Faults());
      } catch (NullPointerException expected) {
        ++caught;
      }
    }
    if (caught != 1000) throw new AssertionError("null checks: " + caught);
    return caught;
  }
  static int overflows() {
    try {
      depth(0);
    } catch (StackOverflowError expected) {
      return 1;
    }
    throw new AssertionError("no stack overflow");
  }
  // The virtual machine throws at the next place where it may, perhaps when the file is closed.
  static int truncations(String name) throws Exception {
    try (RandomAccessFile file = new RandomAccessFile(name, "rw")) {
      file.setLength(1 << 16);
      MappedByteBuffer mapped = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 1 << 16);
      file.setLength(0);
      mapped.put(1 << 15, (byte) 1);
    } catch (InternalError expected) {
      return 1;
    }
    throw new AssertionError("no InternalError from a truncated file");
  }

  public static void main(String[] arguments) throws Exception {
    MappedByteBuffer report;
    try (FileChannel channel = FileChannel.open(Path.of(arguments[0]))) {
      report = channel.map(FileChannel.MapMode.READ_ONLY, 0, 32);
    }
    report.order(java.nio.ByteOrder.nativeOrder());
    long writes = Long.parseLong(arguments[2]);
    int each = Integer.parseInt(arguments[3]);
    int nulls = 0;
    int overflows = 0;
    int truncated = 0;
    while (report.getLong(0) < writes || overflows < each || truncated < each) {
      nulls += nullChecks();
      overflows += overflows();
      truncated += truncations(arguments[1]);
    }
    System.out.println("faults " + (nulls + overflows + truncated));
  }
}
