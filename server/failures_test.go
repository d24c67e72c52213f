package server

import (
	"fmt"
	"testing"
	"time"
)

func TestFailures(t *testing.T) {
	var f failures
	now := time.Unix(1_000_000, 0)
	for i := range mostFailures + 1 {
		for _, from := range []string{"192.0.2.1:%d", "[2001:db8::%d]:1", "pipe%d"} {
			if wait := f.add(fmt.Sprintf(from, i+1), now.Add(time.Duration(i)*time.Second)); (wait > 0) != (i == mostFailures) {
				t.Errorf("%s, failure %d: %v", from, i+1, wait)
			}
		}
	}
	if wait := f.add("192.0.2.1:9", now.Add(50*time.Second)); wait != 10*time.Second {
		t.Errorf("again after %v", wait)
	}
	for _, other := range []string{"192.0.2.2:9", "[2001:db8:0:1::1]:1"} {
		if wait := f.add(other, now); wait != 0 {
			t.Errorf("%s, which has not failed: %v", other, wait)
		}
	}
	for i := range mostFailing {
		f.add(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), now)
	}
	if len(f.by) != mostFailing || f.add("192.0.2.3:1", now) != 0 || f.add("192.0.2.1:1", now) == 0 {
		t.Errorf("%d addresses are counted", len(f.by))
	}
	if f.add("192.0.2.1:1", now.Add(failuresFor)) != 0 || len(f.by) != 1 {
		t.Error("nothing is forgotten")
	}
}
