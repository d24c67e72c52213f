package bide

import (
	"encoding/json"
	"fmt"
)

// MaxPayload is the most bytes of JSON that one input, result, signal or value
// may have.
const MaxPayload = 2 << 20

func encode(field string, v any) (json.RawMessage, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, &CodecError{Field: field, Message: fmt.Sprintf("cannot be kept as JSON: %v", err)}
	}
	if len(data) > MaxPayload {
		return nil, &PayloadTooLargeError{Field: field, Size: len(data), Limit: MaxPayload}
	}
	return data, nil
}

func decode[T any](field string, data json.RawMessage) (T, error) {
	var v T
	if len(data) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, &CodecError{Field: field, Message: fmt.Sprintf("the kept JSON does not fit %T: %v", v, err)}
	}
	return v, nil
}
