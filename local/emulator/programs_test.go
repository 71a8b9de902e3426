package emulator_test

import (
	"compress/flate"
	"debug/elf"
	"io"
	"os"
	"testing"
)

// TestPrograms looks at what is deployed: programs that need nothing of the image
// that they run in, and that are small, so that they start fast.
func TestPrograms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var largest string
	var most int64
	for _, f := range w.template.Functions {
		path := w.programs + "/" + f.Name
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			largest, most = path, info.Size()
		}
		program, err := elf.Open(path)
		if err != nil {
			t.Skip("not on Linux:", err)
		}
		defer program.Close()
		if program.Section(".interp") != nil || program.Section(".symtab") != nil {
			t.Errorf("%s is linked dynamically, or not stripped", f.Name)
		}
	}
	if size := packed(t, largest); size > 8_000_000 {
		t.Errorf("%s has %d bytes as an archive, want at most 8,000,000", largest, size)
	}
}

// packed returns the size of a program in an archive that is packed fast. The one
// that is deployed is smaller.
func packed(t *testing.T, path string) int64 {
	t.Helper()
	program, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	from, to := io.Pipe()
	go func() {
		archive, _ := flate.NewWriter(to, flate.BestSpeed) // the level is one of its own
		_, err := io.Copy(archive, program)
		archive.Close()
		to.CloseWithError(err)
	}()
	size, err := io.Copy(io.Discard, from)
	if err != nil {
		t.Fatal(err)
	}
	return size
}
