package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	engine "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// finding is a line of bide doctor.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warn or fail
	Found   string `json:"found"`
	Mend    string `json:"mend,omitempty"`
}

const (
	verdictOK   = "ok"
	verdictWarn = "warn"
	verdictFail = "fail"
)

// examination gathers what bide doctor finds.
type examination struct {
	target      *target
	list        []finding
	unreachable bool
}

func (e *examination) note(check, verdict, found, mend string) {
	e.list = append(e.list, finding{check, verdict, found, mend})
}

// fail notes an error.
func (e *examination) fail(check string, err error, mend string) {
	e.unreachable = e.unreachable || isUnreachable(err)
	e.note(check, verdictFail, strings.TrimPrefix(inWords(err).Error(), "bide: "), mend)
}

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong, and say how to mend it",
		Long: `Look for what is wrong, and say how to mend it: the file or the server, who works on
it, runs that nobody serves, clocks. The exit code is 1 when something fails, 7 when
the server or the database cannot be reached.`,
		Args: arguments(cobra.NoArgs, "bide doctor"),
	}
	t, f := targetFlags(c), formatFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := t.check(); err != nil {
			return err
		}
		e := &examination{target: t}
		e.examine(c.Context())
		if err := c.Context().Err(); err != nil {
			return err
		}
		err := printAll(c.OutOrStdout(), *f, e.list, "CHECK\tVERDICT\tFOUND", func(x finding) string {
			if x.Mend != "" {
				x.Found += "; " + x.Mend
			}
			return cells(x.Check, x.Verdict, x.Found)
		})
		if err == nil && e.unreachable {
			return &endedError{exitUnreachable}
		}
		if err == nil && slices.ContainsFunc(e.list, func(x finding) bool { return x.Verdict == verdictFail }) {
			return &endedError{exitError}
		}
		return err
	}
	return c
}

func (e *examination) examine(ctx context.Context) {
	e.note("version", verdictOK, readBuild().String(), "")
	ok, owner := true, 0
	switch {
	case e.target.server != "":
		ok = e.server(ctx)
	case !isPostgres(e.target.db):
		ok, owner = e.file()
	}
	if !ok {
		return
	}
	s, err := e.target.read(ctx)
	if err != nil {
		mend := ""
		if strings.Contains(err.Error(), "open it once for writing") {
			mend = e.target.command("migrate") + " does"
		}
		e.fail("store", err, mend)
		return
	}
	defer s.Close()
	if err := e.runs(ctx, s, owner); err != nil {
		e.fail("store", err, "")
	}
}

// file looks at a SQLite file; owner is the process that has it open, 0 for none.
func (e *examination) file() (ok bool, owner int) {
	db := e.target.db
	info, err := os.Stat(db)
	if errors.Is(err, fs.ErrNotExist) {
		e.note("file", verdictFail, "there is no file "+db, e.target.command("dev")+" makes it")
		return false, 0
	} else if err != nil {
		e.note("file", verdictFail, err.Error(), "")
		return false, 0
	}
	size := info.Size()
	if wal, err := os.Stat(db + "-wal"); err == nil {
		size += wal.Size()
	}
	e.note("file", verdictOK, fmt.Sprintf("%s, %d KiB with its log", db, (size+1023)/1024), "")
	if fault := quickCheck(db); fault != "" {
		e.note("integrity", verdictFail, fault, "stop all that has it open, keep a copy, and recover it with the sqlite3 program's .recover")
		return false, 0
	}
	e.note("integrity", verdictOK, "quick check passed", "")

	s, err := sqlite.Open(db)
	if inUse, ok := errors.AsType[*sqlite.InUseError](err); ok {
		o := inUse.Owner
		e.note("owner", verdictOK, fmt.Sprintf("process %d (%s) has it open since %s", o.PID, o.Program, o.Since.Local().Format(time.DateTime)), "")
		return true, o.PID
	} else if err != nil {
		e.note("owner", verdictFail, err.Error(), "")
		return false, 0
	}
	_ = s.Close()
	e.note("owner", verdictWarn, "no program has it open: nothing in it goes on", "start your worker on it")
	return true, 0
}

// quickCheck asks SQLite whether the file is sound; "" is yes.
func quickCheck(db string) (fault string) {
	conn, err := engine.OpenConn(db, engine.OpenReadOnly)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	conn.SetBusyTimeout(10 * time.Second)
	err = sqlitex.ExecuteTransient(conn, "PRAGMA quick_check(1)", &sqlitex.ExecOptions{ResultFunc: func(stmt *engine.Stmt) error {
		if answer := stmt.ColumnText(0); answer != "ok" {
			fault = answer
		}
		return nil
	}})
	if err != nil {
		return err.Error()
	}
	return fault
}

const (
	reachWithin = 5 * time.Second
	skewed      = 5 * time.Second
)

// server looks whether the server answers, and how its clock is set.
func (e *examination) server(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	url := strings.TrimRight(e.target.server, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		e.note("server", verdictFail, err.Error(), "")
		return false
	}
	sent := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.unreachable = true
		e.note("server", verdictFail, err.Error(), "start one with bide dev or bide serve, or name another with --server URL or --db FILE")
		return false
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		e.unreachable = resp.StatusCode == http.StatusNotFound // somebody answers, but no bide server
		e.note("server", verdictFail, url+" answers "+resp.Status, "its log says why")
		return false
	}
	took := time.Since(sent)
	e.note("server", verdictOK, fmt.Sprintf("%s answers in %s", url, short(took)), "")
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		skew := date.Sub(sent.Add(took / 2))
		if skew.Abs() > skewed {
			e.note("clock", verdictWarn, fmt.Sprintf("the server's is %s off from this machine's", short(skew.Abs())),
				"set both by NTP; runs go by the server's, what you are shown by yours")
		} else {
			e.note("clock", verdictOK, "the server's and this machine's agree", "")
		}
	}
	return true
}

// runs looks at what is in the store and who works on it.
func (e *examination) runs(ctx context.Context, s bide.Store, owner int) error {
	newest, err := s.Runs(ctx, bide.Query{Limit: 1})
	if err != nil {
		return err
	}
	if len(newest) > 0 && time.Until(newest[0].CreatedAt) > skewed {
		e.note("clock", verdictWarn, "the newest run was made in the future: a clock was set back", "waits for a date go by the clock, all others do not")
	}
	admin, ok := s.(bide.Admin)
	if !ok {
		return nil
	}
	status, err := admin.Status(ctx)
	if err != nil {
		return err
	}
	open := int64(0)
	for i := range status.Counts {
		if c := &status.Counts[i]; !c.State.Ended() {
			open += c.Runs
		}
	}
	e.note("runs", verdictOK, fmt.Sprintf("%d have not ended", open), "")
	if owner != 0 { // only it knows who works
		if url := e.target.servedAt(ctx, owner); url != "" {
			e.note("workers", verdictOK, "only the owner knows them", "bide doctor --server "+url+" asks it")
		}
		return nil
	}
	return e.workers(ctx, s, &status)
}

// workers says who works on which queue, and what nobody serves.
func (e *examination) workers(ctx context.Context, s bide.Store, status *bide.Status) error {
	byQueue := map[string]int{}
	for _, w := range status.Workers {
		for _, q := range w.Queues {
			byQueue[q]++
		}
	}
	for _, q := range slices.Sorted(maps.Keys(byQueue)) {
		e.note("queue "+q, verdictOK, count(byQueue[q], "worker"), "")
	}
	if len(byQueue) == 0 {
		e.note("workers", verdictWarn, "none is known", "start a program that has your workflows registered")
	}
	for i := range status.Counts {
		c := &status.Counts[i]
		if c.State != bide.Queued && c.State != bide.Canceling || slices.ContainsFunc(status.Workers, func(w bide.WorkerInfo) bool {
			return slices.Contains(w.Queues, c.Queue) && slices.Contains(w.Workflows, c.Workflow)
		}) {
			continue
		}
		found := fmt.Sprintf("%s %v that no worker serves", count(int(c.Runs), "run"), c.State)
		if !c.Oldest.IsZero() {
			found += ", for " + short(time.Since(c.Oldest))
		}
		mend := "start a worker that has it registered and takes queue " + c.Queue
		if c.State == bide.Canceling {
			one, err := s.Runs(ctx, bide.Query{States: []bide.State{c.State}, Workflow: c.Workflow, Queue: c.Queue, Limit: 1})
			if err != nil {
				return err
			}
			if len(one) > 0 {
				mend += ", or end it at once: " + e.target.command("terminate", one[0].ID)
			}
		}
		e.note("workflow "+c.Workflow, verdictWarn, found, mend)
	}
	return nil
}
