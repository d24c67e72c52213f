package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"text/tabwriter"
	"time"
)

// ledger is the service's memory and the proof of what was paid: a file of JSON
// lines that only grows, each line synced to the disk.
type ledger struct {
	mu      sync.Mutex
	file    *os.File
	entries []entry
}

type entry struct {
	Event  string          `json:"event"`
	At     time.Time       `json:"at"`
	Key    string          `json:"key,omitempty"` // the Idempotency-Key
	Call   string          `json:"call,omitempty"`
	Status int             `json:"status,omitempty"`
	Cents  int             `json:"cents,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

const (
	opened    = "opened"    // a process began to use the ledger
	requested = "requested" // a call came in
	refused   = "refused"   // it got an error, for free
	billed    = "billed"    // it was carried out and paid for
)

func openLedger(path string) (*ledger, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l := &ledger{}
	size := 0
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // torn by a crash, and so never acknowledged
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		l.entries = append(l.entries, e)
		size += len(line)
	}
	l.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if err := l.file.Truncate(int64(size)); err != nil {
		return nil, err
	}
	l.write(entry{Event: opened})
	return l, nil
}

func (l *ledger) Close() error { return l.file.Close() }

// write keeps an entry and returns how many of its event there are now.
func (l *ledger) write(e entry) (number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked(e)
}

func (l *ledger) writeLocked(e entry) (number int) {
	e.At = time.Now()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		panic(fmt.Sprintf("ledger: %v", err)) // a service that cannot keep books must not answer
	}
	l.entries = append(l.entries, e)
	for _, old := range l.entries {
		if old.Event == e.Event {
			number++
		}
	}
	return number
}

// answer returns what the call with this key was answered, nil if it was not.
func (l *ledger) answer(key string) json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answerLocked(key)
}

func (l *ledger) answerLocked(key string) json.RawMessage {
	for _, e := range l.entries {
		if e.Event == billed && e.Key == key {
			return e.Answer
		}
	}
	return nil
}

// bill keeps the answer and takes the money, unless another request with this
// key was faster.
func (l *ledger) bill(key, call string, cents int, answer any) json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept := l.answerLocked(key); kept != nil {
		return kept
	}
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err) // our own types
	}
	l.writeLocked(entry{Event: billed, Key: key, Call: call, Cents: cents, Answer: data})
	return data
}

// job finds a job by its id among the answers.
func (l *ledger) job(id string) (j startedJob, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Event == billed && json.Unmarshal(e.Answer, &j) == nil && j.ID == id {
			return j, true
		}
	}
	return startedJob{}, false
}

// account is what became of one paid call.
type account struct {
	call                       string
	requested, refused, billed int
	cents                      int
}

// accounts sums up what happened since then by key, in the order of first requests.
func (l *ledger) accounts(since time.Time) (list []*account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byKey := map[string]*account{}
	for _, e := range l.entries {
		if e.Key == "" || e.At.Before(since) {
			continue
		}
		a := byKey[e.Key]
		if a == nil {
			a = &account{call: e.Call}
			byKey[e.Key] = a
			list = append(list, a)
		}
		switch e.Event {
		case requested:
			a.requested++
		case refused:
			a.refused++
		case billed:
			a.billed++
			a.cents += e.Cents
		}
	}
	return list
}

// print writes the accounts as a table, and what they prove.
func (l *ledger) print(w io.Writer, since time.Time) error {
	list := l.accounts(since)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "paid call\trequested\trefused\tbilled\tcost")
	var requests, refusals, bills, cents, twice int
	for _, a := range list {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t$%d.%02d\n", a.call, a.requested, a.refused, a.billed, a.cents/100, a.cents%100)
		requests += a.requested
		refusals += a.refused
		bills += a.billed
		cents += a.cents
		twice += max(a.billed-1, 0)
	}
	fmt.Fprintf(table, "sum\t%d\t%d\t%d\t$%d.%02d\n", requests, refusals, bills, cents/100, cents%100)
	if err := table.Flush(); err != nil {
		return err
	}
	if twice > 0 {
		_, err := fmt.Fprintf(w, "\n%d bills too many: a finished call was paid for twice.\n", twice)
		return err
	}
	// A request that was neither refused nor the first to be answered is one that
	// a process made anew because another had died in the middle of it.
	_, err := fmt.Fprintf(w, "\nNo finished call was paid for twice: %d calls, %d bills. "+
		"Requests repeated because a process had died in the middle of one: %d.\n", len(list), bills, requests-refusals-bills)
	return err
}
