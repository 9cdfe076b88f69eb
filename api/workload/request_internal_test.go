// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"math/big"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestMilliString(t *testing.T) {
	for value, want := range map[Milli]string{0: "0", 1: "0.001", 10: "0.01", 500: "0.5", 999: "0.999", 1000: "1", 1250: "1.25", 99999000: "99999", -500: "-0.5"} {
		if got := value.String(); got != want {
			t.Errorf("%d prints %s, want %s", int64(value), got, want)
		}
	}
}

func TestMilliRejectsInvalidNumbers(t *testing.T) {
	for _, raw := range []string{"-1", "0.0001", "1e3", "\"1\"", "true", "{}"} {
		var value Milli
		if err := json.Unmarshal([]byte(raw), &value); err == nil {
			t.Errorf("%s became %s", raw, value)
		}
	}
}

func TestMilliJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := Milli(rapid.Int64Range(0, maxWholeGPUs*1000).Draw(t, "value"))
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var back Milli
		if err := json.Unmarshal(raw, &back); err != nil || back != value {
			t.Fatalf("%d became %s and %d: %v", value, raw, back, err)
		}
	})
}

// decimal agrees with arithmetic.
func TestParseDecimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[0-9]{0,7}(\.[0-9]{0,6})?`).Draw(t, "text")
		value, exact, ok := parseDecimal(text)
		want, is := new(big.Rat).SetString(text)
		if is && want.Cmp(big.NewRat(maxWholeGPUs+1, 1)) >= 0 {
			is = false
		}
		if ok != is {
			t.Fatalf("%q: read %v, want %v", text, ok, is)
		}
		if !ok {
			return
		}
		rest := new(big.Rat).Sub(want, big.NewRat(int64(value), 1000))
		if exact != (rest.Sign() == 0) || rest.Sign() < 0 || rest.Cmp(big.NewRat(1, 1000)) >= 0 {
			t.Fatalf("%q is %d thousandths, exact %v: %s are left", text, value, exact, rest)
		}
	})
}

func TestIsPodTerminal(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{
		"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false,
		corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		if got := IsPodTerminal(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}); got != want {
			t.Errorf("phase %q: %v", phase, got)
		}
	}
}
