package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bide-dev/bide"
	"github.com/bide-dev/bide/webhook"
)

// What the schemes' own documents and test suites sign: the Standard Webhooks
// libraries and specification (the two keys of its v1a signatures: a seed, and a
// seed with its public key), GitHub's "Validating webhook deliveries", Slack's
// "Verifying requests from Slack". Stripe publishes no signature with its secret;
// the one here was made with openssl.
const (
	sharedSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherSecret  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	seedSecret   = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
	pairSecret   = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicKey    = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="

	messageID   = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	messageBody = `{"test": 2432232314}`
	sharedSum   = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	seedSum     = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
	pairSum     = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

	githubSecret = "It's a Secret to Everybody"
	githubBody   = "Hello, World!"
	githubSum    = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

	slackSecret = "8f742231b10e8888abcd99yyyzzz85a5"
	slackBody   = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	slackSum    = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"

	stripeSecret = "whsec_test_secret"
	stripeBody   = `{"id":"evt_1","object":"event"}`
	stripeSum    = "t=1492774577,v1=654b43d3508ecadb3f8cefc4bc7d3d2bdc5ba9e03bf2c89b2d0657a8e24e4543"
)

var (
	messageAt = time.Unix(1614265330, 0).UTC()
	slackAt   = time.Unix(1531420618, 0).UTC()
	stripeAt  = time.Unix(1492774577, 0).UTC()
)

// delivery is one that a verifier takes.
type delivery struct {
	name     string
	verifier webhook.Verifier
	header   map[string]string
	body     string
	now      time.Time
	want     webhook.Delivery
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func standardHeader(signature string) map[string]string {
	return map[string]string{
		"webhook-id":        messageID,
		"webhook-timestamp": strconv.FormatInt(messageAt.Unix(), 10),
		"webhook-signature": signature,
	}
}

func deliveries() []delivery {
	message := webhook.Delivery{ID: messageID, At: messageAt}
	return []delivery{
		{"standard v1", must(webhook.Standard(sharedSecret)), standardHeader(sharedSum), messageBody, messageAt, message},
		{"standard v1a", must(webhook.Standard(publicKey)), standardHeader(pairSum), messageBody, messageAt, message},
		{"github", must(webhook.GitHub(githubSecret)),
			map[string]string{"X-Hub-Signature-256": githubSum}, githubBody, messageAt, webhook.Delivery{}},
		{"stripe", must(webhook.Stripe(stripeSecret)), map[string]string{"Stripe-Signature": stripeSum},
			stripeBody, stripeAt, webhook.Delivery{ID: "evt_1", At: stripeAt}},
		{"slack", must(webhook.Slack(slackSecret)),
			map[string]string{"X-Slack-Signature": slackSum, "X-Slack-Request-Timestamp": "1531420618"},
			slackBody, slackAt, webhook.Delivery{At: slackAt}},
	}
}

func toHeader(m map[string]string) http.Header {
	h := http.Header{}
	for name, value := range m {
		h.Set(name, value)
	}
	return h
}

func TestPublishedVectors(t *testing.T) {
	for _, d := range deliveries() {
		got, err := d.verifier.Verify(toHeader(d.header), []byte(d.body), d.now)
		if err != nil || got != d.want {
			t.Errorf("%s: %+v, %v, want %+v", d.name, got, err, d.want)
		}
	}
}

// refused fails the test unless the delivery is refused, with nothing of it
// told and nothing of the secrets.
func refused(t *testing.T, v webhook.Verifier, h http.Header, body []byte, now time.Time, reason string) {
	t.Helper()
	got, err := v.Verify(h, body, now)
	var bad *webhook.SignatureError
	if !errors.As(err, &bad) || got != (webhook.Delivery{}) {
		t.Fatalf("%v: %+v, %v, want a SignatureError", h, got, err)
	}
	if bad.Code() != "bad_signature" || bide.Code(err) != "bad_signature" || bad.Scheme == "" || !strings.Contains(bad.Error(), reason) {
		t.Fatalf("%q (code %q, scheme %q), want one with %q", bad, bad.Code(), bad.Scheme, reason)
	}
	for _, secret := range []string{sharedSecret[6:], publicKey[5:], githubSecret, stripeSecret, slackSecret} {
		if strings.Contains(bad.Error(), secret) {
			t.Fatalf("%q tells a secret", bad)
		}
	}
}

// A header that is missing, empty or there twice is refused, in each scheme.
func TestEachHeaderOnce(t *testing.T) {
	for _, d := range deliveries() {
		for name := range d.header {
			h := toHeader(d.header)
			h.Set(name, "")
			refused(t, d.verifier, h, []byte(d.body), d.now, name+" is missing")
			h.Del(name)
			refused(t, d.verifier, h, []byte(d.body), d.now, name+" is missing")
			for _, second := range []string{d.header[name], "", "x"} {
				h = toHeader(d.header)
				h.Add(name, second)
				refused(t, d.verifier, h, []byte(d.body), d.now, name+" is there 2 times")
			}
		}
		refused(t, d.verifier, nil, []byte(d.body), d.now, "is missing")
	}
}

func TestClock(t *testing.T) {
	for _, d := range deliveries() {
		if d.want.At.IsZero() {
			continue
		}
		h := toHeader(d.header)
		for _, c := range []struct {
			off    time.Duration
			reason string // "": accepted
		}{
			{-5 * time.Minute, ""},
			{5 * time.Minute, ""},
			{-5*time.Minute - 1, "is 5m0s ahead; the limit is 5m0s"},
			{5*time.Minute + 1, "is 5m0s ago; the limit is 5m0s"},
			{75 * time.Hour, "is 75h0m0s ago"},
			{-75 * time.Hour, "is 75h0m0s ahead"},
			{1 << 62, "ago"},
			{-1 << 62, "ahead"},
		} {
			if c.reason != "" {
				refused(t, d.verifier, h, []byte(d.body), d.now.Add(c.off), c.reason)
			} else if _, err := d.verifier.Verify(h, []byte(d.body), d.now.Add(c.off)); err != nil {
				t.Errorf("%s: %v off: %v", d.name, c.off, err)
			}
		}
		refused(t, d.verifier, h, []byte(d.body), time.Time{}, "ahead")
	}
}

// Rotation: any of the secrets, any of the signatures, in any order.
func TestRotation(t *testing.T) {
	mac := func(secret, content string) []byte {
		m := hmac.New(sha256.New, []byte(secret))
		m.Write([]byte(content))
		return m.Sum(nil)
	}
	junk := "v1," + base64.StdEncoding.EncodeToString(mac("x", "x"))
	hexJunk := hex.EncodeToString(mac("x", "x"))
	stripeHex := strings.TrimPrefix(stripeSum, "t=1492774577,v1=")
	stripe := func(s string) map[string]string { return map[string]string{"Stripe-Signature": s} }
	both := must(webhook.Standard(otherSecret, publicKey, sharedSecret))
	for _, c := range []struct {
		name   string
		v      webhook.Verifier
		header map[string]string
		body   string
		now    time.Time
		ok     bool
	}{
		{"standard, second secret", both, standardHeader(sharedSum), messageBody, messageAt, true},
		{"standard, public key among shared", both, standardHeader(pairSum), messageBody, messageAt, true},
		{"standard, the right one last", both, standardHeader("v2,x " + junk + " v1a, " + sharedSum), messageBody, messageAt, true},
		{"standard, the right one first", both, standardHeader(pairSum + " " + junk), messageBody, messageAt, true},
		{"standard, another key's v1a", both, standardHeader(seedSum), messageBody, messageAt, false},
		{"standard, v1 said to be v1a", both, standardHeader("v1a" + strings.TrimPrefix(sharedSum, "v1")), messageBody, messageAt, false},
		{"standard, v1a said to be v1", both, standardHeader("v1" + strings.TrimPrefix(pairSum, "v1a")), messageBody, messageAt, false},
		{"standard, only an old secret", must(webhook.Standard(otherSecret)), standardHeader(sharedSum), messageBody, messageAt, false},
		{"standard, 16 signatures", both, standardHeader(strings.Repeat(junk+" ", 15) + sharedSum), messageBody, messageAt, true},
		{"standard, 17 signatures", both, standardHeader(sharedSum + strings.Repeat(" "+junk, 16)), messageBody, messageAt, false},
		{"github, second secret", must(webhook.GitHub("old", githubSecret)), map[string]string{"X-Hub-Signature-256": githubSum}, githubBody, messageAt, true},
		{"github, SHA-1", must(webhook.GitHub(githubSecret)), map[string]string{"X-Hub-Signature": "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59"}, githubBody, messageAt, false},
		{"slack, second secret", must(webhook.Slack("old", slackSecret)), map[string]string{"X-Slack-Signature": slackSum, "X-Slack-Request-Timestamp": "1531420618"}, slackBody, slackAt, true},
		{"stripe, second secret", must(webhook.Stripe("old", stripeSecret)), stripe(stripeSum), stripeBody, stripeAt, true},
		{"stripe, two signatures", must(webhook.Stripe(stripeSecret)), stripe("t=1492774577,v1=" + hexJunk + ",v1=" + stripeHex + ",v0=x"), stripeBody, stripeAt, true},
		{"stripe, v0 only", must(webhook.Stripe(stripeSecret)), stripe("t=1492774577,v0=" + stripeHex), stripeBody, stripeAt, false},
		{"stripe, two times", must(webhook.Stripe(stripeSecret)), stripe("t=1492774578," + stripeSum), stripeBody, stripeAt, false},
		{"stripe, no time", must(webhook.Stripe(stripeSecret)), stripe("v1=" + stripeHex), stripeBody, stripeAt, false},
		{"stripe, 17 signatures", must(webhook.Stripe(stripeSecret)), stripe(stripeSum + strings.Repeat(",v1="+hexJunk, 16)), stripeBody, stripeAt, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.ok {
				refused(t, c.v, toHeader(c.header), []byte(c.body), c.now, "")
			} else if _, err := c.v.Verify(toHeader(c.header), []byte(c.body), c.now); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestVerifierFunc(t *testing.T) {
	want := webhook.Delivery{ID: "a"}
	var v webhook.Verifier = webhook.VerifierFunc(func(h http.Header, body []byte, now time.Time) (webhook.Delivery, error) {
		if h.Get("K") != "v" || string(body) != "b" || !now.Equal(messageAt) {
			return webhook.Delivery{}, &webhook.SignatureError{Scheme: "mine", Reason: "other arguments"}
		}
		return want, nil
	})
	if got, err := v.Verify(http.Header{"K": {"v"}}, []byte("b"), messageAt); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
