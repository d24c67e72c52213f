package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bide-dev/bide/webhook"
)

func signStripe(body string) string {
	m := hmac.New(sha256.New, []byte(stripeSecret))
	m.Write([]byte("1492774577." + body))
	return "t=1492774577,v1=" + hex.EncodeToString(m.Sum(nil))
}

// FuzzVerify gives every scheme any headers and body: none panics, and none
// accepts what it did not sign.
func FuzzVerify(f *testing.F) {
	all := deliveries()
	for i, d := range all {
		var values []string
		for _, name := range names(d) {
			values = append(values, d.header[name])
		}
		values = append(values, "", "")
		f.Add(i, values[0], values[1], values[2], []byte(d.body))
	}
	f.Add(0, "msg", "v1,", "1614265330", []byte(nil))
	f.Add(1, "msg", "v1a,AAAA v1a", "1614265330", []byte(nil))
	f.Add(3, "t=,v1=,t", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, scheme int, a, b, c string, body []byte) {
		d := all[uint(scheme)%uint(len(all))]
		header := map[string]string{}
		signed := string(body) == d.body
		for i, name := range names(d) {
			header[name] = []string{a, b, c}[i]
			signed = signed && containsAll(header[name], d.header[name])
		}
		got, err := d.verifier.Verify(toHeader(header), body, d.now)
		var bad *webhook.SignatureError
		switch {
		case err != nil && (!errors.As(err, &bad) || got != webhook.Delivery{}):
			t.Fatalf("%+v, %v", got, err)
		case err == nil && !signed:
			t.Fatalf("%s: accepted %q, %q", d.name, header, body)
		}
	})
}

// names are the headers of a scheme, in one order.
func names(d delivery) []string { return slices.Sorted(maps.Keys(d.header)) }

// containsAll reports whether a header has every part of the right one: a list
// of signatures may have more.
func containsAll(header, right string) bool {
	parts := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' })
	}
	for _, part := range parts(right) {
		if !slices.Contains(parts(header), part) {
			return false
		}
	}
	return true
}
