package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
	"github.com/bide-dev/bide/storetest"
)

func open(t *testing.T, path string) bide.Store {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.Run(t, storetest.Door{Open: func(t *testing.T) bide.Store { return open(t, ":memory:") }})
	})
	// Whether the owner closed the file or died, the next one finds the same.
	for name, next := range map[string]func(t *testing.T, old bide.Store, path string) string{"closed": closed, "crashed": crashed} {
		t.Run(name, func(t *testing.T) {
			path := "" // of the store of the case that is running
			storetest.Run(t, storetest.Door{
				Open: func(t *testing.T) bide.Store {
					path = filepath.Join(t.TempDir(), "bide.db")
					return open(t, path)
				},
				Reopen: func(t *testing.T, old bide.Store) bide.Store {
					path = next(t, old, path)
					return open(t, path)
				},
			})
		})
	}
}

func closed(t *testing.T, old bide.Store, path string) string {
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// crashed copies the files as a dying process leaves them, before the old owner
// has a chance to tidy up.
func crashed(t *testing.T, old bide.Store, path string) string {
	copied := filepath.Join(t.TempDir(), "bide.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_ = old.Close()
	return copied
}
