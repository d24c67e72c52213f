package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/sqlite"
)

// defaultAddr is where bide dev and bide demo listen, and where all others look
// when they are told of no file and no server.
const defaultAddr = "127.0.0.1:7433"

const defaultServer = "http://" + defaultAddr

// target is the store that a command is about: a file, a database or a server.
type target struct {
	db, server, token string

	served string // where the file that was opened to read is served just now, if it is
}

// targetFlags adds the flags that name a store to a command.
func targetFlags(c *cobra.Command) *target {
	t := &target{}
	flags := c.Flags()
	flags.StringVar(&t.db, "db", "", "`FILE` that keeps the runs, or postgres://...")
	flags.StringVar(&t.server, "server", "", "`URL` of a bide server (default "+defaultServer+")")
	flags.StringVar(&t.token, "token", "", "`KEY` for the server; better given as BIDE_TOKEN")
	setting(flags, "db", "server", "token")
	return t
}

// check says what is wrong with the flags.
func (t *target) check() error {
	switch {
	case t.db != "" && t.server != "":
		return usage("--db and --server: give one of them")
	case t.db == "" && t.server == "":
		t.server = defaultServer
	case t.server != "" && !strings.HasPrefix(t.server, "http://") && !strings.HasPrefix(t.server, "https://"):
		return usage("--server %q: must begin with http:// or https://", t.server)
	}
	return nil
}

func isPostgres(db string) bool {
	return strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://")
}

// read opens the store to look into it, if need be beside the program that owns
// the file.
func (t *target) read(ctx context.Context) (bide.Store, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if t.server != "" || isPostgres(t.db) {
		return t.connect(ctx)
	}
	store, err := sqlite.Open(t.db, sqlite.ReadOnly())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, t.missing()
	} else if err != nil {
		return nil, err
	}
	if f := readServer(ctx, store); f.URL != "" && listens(ctx, f.URL) == nil {
		t.served = f.URL
	}
	return store, nil
}

// write opens the store to change it. mayBeNew says that the file may be new.
func (t *target) write(ctx context.Context, mayBeNew bool) (bide.Store, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if t.server != "" || isPostgres(t.db) {
		return t.connect(ctx)
	}
	if _, err := os.Stat(t.db); errors.Is(err, fs.ErrNotExist) && !mayBeNew {
		return nil, t.missing()
	}
	store, err := sqlite.Open(t.db)
	if inUse, ok := errors.AsType[*sqlite.InUseError](err); ok {
		return nil, t.owned(ctx, inUse)
	} else if err != nil {
		return nil, err
	}
	return store, nil
}

func (t *target) missing() error {
	return fmt.Errorf("there is no file %s; %s makes it", t.db, t.command("dev"))
}

// command is a command line on the same store, to be said in messages: what is
// copied from there works in a shell.
func (t *target) command(words ...string) string {
	switch {
	case t.db != "":
		words = append(words, "--db", sharedDB(t.db))
	case t.server != "" && t.server != defaultServer:
		words = append(words, "--server", t.server)
	}
	line := "bide"
	for _, w := range words {
		line += " " + quote(w)
	}
	return line
}

// change is command for what changes the store: whoever has a file open does that.
func (t *target) change(words ...string) string {
	if t.served != "" {
		return (&target{server: t.served}).command(words...)
	}
	return t.command(words...)
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quote makes a text one word of a shell's command line.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// sharedDB is a database as a command line in a message has it: of one that has a
// password, or may have, there is no more than what it is.
func sharedDB(db string) string {
	if !isPostgres(db) {
		return db
	}
	u, err := url.Parse(db)
	if err != nil || u.RawQuery != "" {
		return "postgres://..."
	}
	if _, secret := u.User.Password(); secret {
		return "postgres://..."
	}
	return db
}

// explain says what to do about an error that is about a run.
func (t *target) explain(id string, err error) error {
	switch {
	case errors.Is(err, bide.ErrNotFound):
		return said(fmt.Sprintf("no run %q; %s shows what there is", id, t.command("list")), err)
	case errors.Is(err, bide.ErrRunEnded):
		return said(fmt.Sprintf("run %s has ended; %s shows how", id, t.command("show", id)), err)
	}
	return err
}

// saidError is an error in other words.
type saidError struct {
	text string
	err  error
}

func said(text string, err error) error { return &saidError{text, err} }

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.err }

// What a server says of itself in the file that it has open, so that those who
// find the file in use know whom to ask.
const (
	factServer = "server"
	factURL    = "url"
)

type serverFact struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

// announce writes down where the store is served.
func announce(ctx context.Context, store bide.Store, url string) error {
	data, err := json.Marshal(serverFact{url, os.Getpid()})
	if err != nil {
		return err
	}
	return store.Commit(ctx, bide.Lease{}, bide.Batch{Facts: []bide.Fact{{Kind: factServer, Key: factURL, Version: bide.AnyVersion, Value: data}}})
}

// owned says who has the file and how to reach it.
func (t *target) owned(ctx context.Context, inUse *sqlite.InUseError) error {
	o := inUse.Owner
	who := fmt.Sprintf("%s belongs to process %d (%s, since %s)", t.db, o.PID, o.Program, o.Since.Local().Format(time.DateTime))
	if url := t.servedAt(ctx, o.PID); url != "" {
		return said(fmt.Sprintf("%s: use --server %s in place of --db", who, url), inUse)
	}
	return said(who+": stop it first, or do it from within that program; bide list, show, history and result work beside it", inUse)
}

// servedAt is where the process serves the file, "" if it does not.
func (t *target) servedAt(ctx context.Context, pid int) string {
	store, err := sqlite.Open(t.db, sqlite.ReadOnly())
	if err != nil {
		return ""
	}
	defer store.Close()
	if f := readServer(ctx, store); f.PID == pid {
		return f.URL
	}
	return ""
}

// readServer reads what announce wrote last, whether it still holds or not.
func readServer(ctx context.Context, store bide.Store) (f serverFact) {
	facts, err := store.Facts(ctx, factServer, factURL)
	if err == nil && len(facts) > 0 && json.Unmarshal(facts[0].Value, &f) != nil {
		return serverFact{}
	}
	return f
}
