package webhook_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide/webhook"
)

// Any change of any byte of the body or of any signed header is refused.
func TestAnyByteChanged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range deliveries() {
		h := toHeader(d.header)
		for i := range len(d.body) {
			refused(t, d.verifier, h, flipped([]byte(d.body), i, rng), d.now, "no signature matches")
		}
		for _, body := range []string{"", d.body + "\n", d.body + "\x00", d.body[1:], d.body[:len(d.body)-1], "." + d.body} {
			refused(t, d.verifier, h, []byte(body), d.now, "no signature matches")
		}
		for name, value := range d.header {
			for i := range len(value) {
				for bit := range 8 {
					changed := []byte(value)
					changed[i] ^= 1 << bit
					h := toHeader(d.header)
					h.Set(name, string(changed))
					refused(t, d.verifier, h, []byte(d.body), d.now, "")
				}
			}
			for _, changed := range []string{value + "0", value + " 0", " " + value + "\n", "0" + value, value[1:], value[:len(value)-1], strings.ToUpper(value)} {
				if changed == value || name == "webhook-signature" && changed == value+" 0" {
					continue // nothing changed, or one more signature of no known kind
				}
				h := toHeader(d.header)
				h.Set(name, changed)
				refused(t, d.verifier, h, []byte(d.body), d.now, "")
			}
		}
	}
}

func flipped(b []byte, i int, rng *rand.Rand) []byte {
	b[i] ^= byte(1 + rng.IntN(255))
	return b
}

// Whatever is signed is verified, by the same secret and no other, and any byte
// changed is refused.
func TestSignedIsVerified(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pairs := map[string]string{sharedSecret: sharedSecret, otherSecret: otherSecret, pairSecret: publicKey}
	for range 300 {
		body := make([]byte, rng.IntN(200))
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		id := fmt.Sprintf("msg-%x_%d", rng.Uint64(), rng.IntN(9))
		at := time.Unix(rng.Int64N(1<<33), rng.Int64N(1e9)).UTC()
		for secret, proof := range pairs {
			h, err := webhook.SignStandard(secret, id, at, body)
			if err != nil {
				t.Fatal(err)
			}
			now := at.Add(time.Duration(rng.Int64N(int64(9*time.Minute))) - 9*time.Minute/2)
			v := must(webhook.Standard(proof))
			want := webhook.Delivery{ID: id, At: at.Truncate(time.Second)}
			if got, err := v.Verify(h, body, now); err != nil || got != want {
				t.Fatalf("%+v, %v, want %+v", got, err, want)
			}
			for _, other := range pairs {
				if other != proof {
					refused(t, must(webhook.Standard(other)), h, body, now, "no signature matches")
				}
			}
			if len(body) > 0 {
				refused(t, v, h, flipped(bytes.Clone(body), rng.IntN(len(body)), rng), now, "no signature matches")
			}
		}
	}
}

// The dots of what is signed cannot be moved: neither the id nor the time can
// take up a part of the body, or give it one.
func TestDotsCannotMove(t *testing.T) {
	v := must(webhook.Standard(sharedSecret))
	h, err := webhook.SignStandard(sharedSecret, "msg_1", messageAt, []byte("1614265331.refund everything"))
	if err != nil {
		t.Fatal(err)
	}
	h.Set("webhook-id", "msg_1.1614265330")
	h.Set("webhook-timestamp", "1614265331")
	refused(t, v, h, []byte("refund everything"), messageAt, "has a dot")

	stripe := must(webhook.Stripe(stripeSecret))
	refused(t, stripe, http.Header{"Stripe-Signature": {strings.Replace(stripeSum, "1492774577", `1492774577.{"id":"evt_1"`, 1)}},
		[]byte(strings.TrimPrefix(stripeBody, `{"id":"evt_1"`)), stripeAt, "")
}

// Times and ids that are read in two ways, or that would end a line of a log.
func TestInjection(t *testing.T) {
	v := must(webhook.Standard(sharedSecret))
	for _, timestamp := range []string{
		"+1614265330", "-1614265330", "01614265330x", "1614265330.0", "1.61426533e9", "0x6037BAF2", "1_614_265_330",
		" 1614265330", "1614265330\n", "١٦١٤٢٦٥٣٣٠", "9223372036854775808", "999999999999999999999999", "NaN", "1614265330,1614265330",
	} {
		h := toHeader(standardHeader(sharedSum))
		h.Set("webhook-timestamp", timestamp)
		refused(t, v, h, []byte(messageBody), messageAt, "webhook-timestamp is not a time")
	}
	for _, id := range []string{"a\nb", "a\x00", "a b", "\x7f", "é", "\xff", strings.Repeat("a", 257)} {
		h := toHeader(standardHeader(sharedSum))
		h.Set("webhook-id", id)
		refused(t, v, h, []byte(messageBody), messageAt, "webhook-id")
	}
	evil := "\r\nSet-Cookie: a=b"
	for _, d := range deliveries() {
		for name, value := range d.header {
			h := toHeader(d.header)
			h.Set(name, value+evil)
			_, err := d.verifier.Verify(h, []byte(d.body), d.now)
			if err == nil || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "Cookie") {
				t.Errorf("%s: %s: %q", d.name, name, err)
			}
		}
	}
}

// A body without a fit id is still verified.
func TestStripeID(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"evt_9","x":[1]}`: "evt_9",
		`{"x":1}`:                "",
		`{"id":7}`:               "",
		`{"id":"a\nb"}`:          "",
		`{"id":"` + strings.Repeat("a", 257) + `"}`: "",
		`[]`:   "",
		`id=1`: "",
		``:     "",
	} {
		h := http.Header{}
		h.Set("Stripe-Signature", signStripe(body))
		got, err := must(webhook.Stripe(stripeSecret)).Verify(h, []byte(body), stripeAt)
		if err != nil || got.ID != want || !got.At.Equal(stripeAt) {
			t.Errorf("%s: %+v, %v, want %q", body, got, err, want)
		}
	}
}
