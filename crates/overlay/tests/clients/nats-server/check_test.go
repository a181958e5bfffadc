package test

import (
	"testing"
	"time"
)

// The tests of reconnection share this function with those of JetStream, which are left out.
func checkFor(t *testing.T, most, every time.Duration, holds func() error) {
	t.Helper()
	until := time.Now().Add(most)
	err := holds()
	for err != nil && time.Now().Before(until) {
		time.Sleep(every)
		err = holds()
	}
	if err != nil {
		t.Fatal(err)
	}
}
