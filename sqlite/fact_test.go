package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
)

// Facts that expire do not pile up, though nobody removes them, and though there
// may be many from a time in which nothing was written.
func TestFactsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, memory)
		rows := func() (n int) {
			synctest.Wait()
			r := <-s.readers
			defer func() { s.readers <- r }()
			err := sqlitex.Execute(r.conn, `SELECT count(*) FROM fact`, &sqlitex.ExecOptions{
				ResultFunc: func(st *sqlite.Stmt) error { n = st.ColumnInt(0); return nil }})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		write := func(key string, life time.Duration) {
			t.Helper()
			f := bide.Fact{Kind: "token", Key: key, Version: bide.AnyVersion, Value: json.RawMessage(`1`), ExpiresAt: time.Now().Add(life)}
			if life == 0 {
				f.ExpiresAt = time.Time{}
			}
			if err := s.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{f}}); err != nil {
				t.Fatal(err)
			}
		}
		write("stays", 0)
		for i := range 500 {
			write(fmt.Sprint("a", i), time.Minute)
			if n := rows(); n > 1+60+2 {
				t.Fatalf("%d rows after %d tokens of a minute, one a second", n, i+1)
			}
			time.Sleep(time.Second)
		}
		for i := range 100 {
			write(fmt.Sprint("b", i), time.Minute)
		}
		time.Sleep(time.Hour)
		for i := range 100 {
			write("renewed", time.Duration(i+1)*time.Hour)
		}
		if n := rows(); n != 2 {
			t.Errorf("%d rows, want the two facts that have not expired", n)
		}
		if facts, err := s.Facts(t.Context(), "token"); len(facts) != 2 || err != nil {
			t.Errorf("there are %v, %v", facts, err)
		}
	})
}

// A change of facts that is refused costs no transaction, and what came at the
// same moment shares one: it is not tried again.
func TestRefusedFactSharesItsTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		ids := []string{s.create(bide.NewRun{}), s.create(bide.NewRun{})}
		leases := map[string]bide.Lease{}
		for _, c := range s.claim("x", time.Hour, time.Second) {
			leases[c.Lease.Run] = c.Lease
		}
		fact := func(key string, version int64) []bide.Fact {
			return []bide.Fact{{Kind: "k", Key: key, Version: version, Value: json.RawMessage(`1`)}}
		}
		record := []bide.Record{{Path: "1", Kind: bide.KindStep, Name: "s"}}
		ops := []*op{
			{commit: true, batch: bide.Batch{Facts: fact("a", 0)}},
			{commit: true, lease: leases[ids[0]], batch: bide.Batch{Records: record, Next: bide.Done{}, Facts: append(fact("b", 0), fact("a", 0)...)}},
			{commit: true, batch: bide.Batch{Facts: append(fact("b", 0), fact("a", 7)...)}},
			{commit: true, lease: leases[ids[1]], batch: bide.Batch{Records: record, Facts: fact("c", 0), Next: bide.Done{}}},
			{signal: true, run: ids[0], msg: bide.Message{Op: bide.OpSignal, Name: "s"}},
		}
		s.sound()
		commits := s.w.wal.commits
		s.mu.Lock() // so that they come together
		for _, o := range ops {
			if err := s.group.Add(o); err != nil {
				t.Fatal(err)
			}
		}
		s.mu.Unlock()
		s.sound()
		for i, o := range ops {
			if refused := i == 1 || i == 2; refused != errors.Is(o.err, bide.ErrFactChanged) || !refused && o.err != nil {
				t.Errorf("op %d: %v", i, o.err)
			}
		}
		if n := s.w.wal.commits - commits; n > 2 { // the first may have gone alone
			t.Errorf("%d transactions", n)
		}
		var keys []string
		facts, err := s.Facts(t.Context(), "k")
		for _, f := range facts {
			keys = append(keys, f.Key)
		}
		if got := strings.Join(keys, " "); got != "a c" || err != nil {
			t.Errorf("there are the facts %s, %v", got, err)
		}
		if history(s, ids[0]) != "" || history(s, ids[1]) == "" {
			t.Errorf("records of the refused commit %q, of the other %q", history(s, ids[0]), history(s, ids[1]))
		}
		commits = s.w.wal.commits
		if err := s.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: fact("a", 0)}); !errors.Is(err, bide.ErrFactChanged) {
			t.Errorf("a second first: %v", err)
		}
		if err := s.Commit(t.Context(), leases[ids[0]], bide.Batch{Next: bide.Done{}}); err != nil {
			t.Errorf("after a refusal the lease is gone: %v", err)
		}
		if n := s.w.wal.commits - commits; n != 1 {
			t.Errorf("%d transactions for one commit and a refusal", n)
		}
	})
}

// Who looks at a file beside its owner reads its facts, as they are.
func TestFactsBesideAnOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bide.db")
	synctest.Test(t, func(t *testing.T) {
		s := newTight(t, path)
		look, err := Open(path, ReadOnly())
		if err != nil {
			t.Fatal(err)
		}
		defer look.Close()
		f := bide.Fact{Kind: "k", Key: "a", Value: json.RawMessage(`1`), ExpiresAt: time.Now().Add(time.Minute)}
		if err := s.Commit(t.Context(), bide.Lease{}, bide.Batch{Facts: []bide.Fact{f}}); err != nil {
			t.Fatal(err)
		}
		if got, err := look.Facts(t.Context(), "k", "a"); len(got) != 1 || string(got[0].Value) != "1" || err != nil {
			t.Errorf("beside the owner there are %+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		if got, err := look.Facts(t.Context(), "k"); len(got) != 0 || err != nil {
			t.Errorf("a minute later there are %+v, %v", got, err)
		}
	})
}
