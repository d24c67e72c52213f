package webhook

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bide-dev/bide"
)

// SignStandard returns the headers with which a delivery is signed by Standard
// Webhooks, as [Standard] verifies them. The secret is either whsec_ and the
// base64 of 24 to 64 bytes, which gives a v1 signature, or whsk_ and the base64
// of an Ed25519 private key (its seed of 32 bytes, or seed and public key), which
// gives a v1a one.
//
// The id names the message and stays the same on each retry; at is the time of
// this attempt, which is signed in whole seconds. Send body as it is here: the
// same JSON written once more may differ.
func SignStandard(secret, id string, at time.Time, body []byte) (http.Header, error) {
	if id == "" {
		return nil, &bide.InvalidError{Field: "id", Reason: "is empty; receivers know a retry by it"}
	}
	if fault := standardIDFault(id); fault != "" {
		return nil, &bide.InvalidError{Field: "id", Reason: fault + "; use letters, digits, _ and -"}
	}
	if at.Unix() < 0 {
		return nil, &bide.InvalidError{Field: "at", Reason: "is before 1970; give the time of this attempt"}
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	content := signedContent(id, timestamp, body)

	var version string
	var signature []byte
	if strings.HasPrefix(secret, privatePrefix) {
		key, err := privateKey(secret)
		if err != nil {
			return nil, err
		}
		version, signature = "v1a", ed25519.Sign(key, content)
	} else {
		key, err := sharedKey("secret", secret)
		if err != nil {
			return nil, err
		}
		version, signature = "v1", sumHMAC(key, content)
	}
	h := http.Header{}
	h.Set(standardID, id)
	h.Set(standardTimestamp, timestamp)
	h.Set(standardSignature, version+","+base64.StdEncoding.EncodeToString(signature))
	return h, nil
}

// privateKey reads a whsk_ secret. Some write the seed alone, some the public
// key after it.
func privateKey(secret string) (ed25519.PrivateKey, error) {
	raw, err := decodeKey("secret", privatePrefix, secret)
	if err != nil {
		return nil, err
	}
	if len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize {
		return nil, &bide.InvalidError{Field: "secret", Reason: fmt.Sprintf("is %d bytes after whsk_; an Ed25519 private key has %d or %d", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize)}
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !bytes.HasPrefix(key, raw) {
		return nil, &bide.InvalidError{Field: "secret", Reason: "has a public key that is not the one of its private key"}
	}
	return key, nil
}
