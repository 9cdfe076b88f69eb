// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func deviceHolders() []Pod {
	return []Pod{
		{
			UID: "a", Namespace: "thesis", Name: "train", ExitDelay: time.Second,
			Grants: newGrants(newGrant("main", gpu, "GPU-0", "GPU-1")),
		},
		{
			UID: "b", Namespace: "thesis", Name: "done", ExitDelay: time.Minute,
			Grants:    newGrants(newGrant("main", gpu, "GPU-2")),
			ReleaseAt: time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC),
		},
	}
}

func TestCheckpoint(t *testing.T) {
	raw, err := Encode("dgx-1", New(inventory, deviceHolders()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode("dgx-1", raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(deviceHolders(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRejectsInvalid(t *testing.T) {
	valid, err := Encode("dgx-1", New(inventory, deviceHolders()))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"nothing", nil, "EOF"},
		{"a torn file", valid[:len(valid)-10], "unexpected EOF"},
		{"zeros, as after a power failure", make([]byte, 512), "invalid character"},
		{"a changed file", bytes.Replace(valid, []byte("GPU-0"), []byte("GPU-3"), 1), "the checksum is"},
		{"two checkpoints", append(bytes.Clone(valid), valid...), "trailing data"},
		{"another program's", []byte(`{"Data":{},"Checksum":1}`), "unknown field"},
		{"a later version", encodeEnvelope([]byte(`{"version":2,"node":"dgx-1","pods":[]}`)), "version is 2"},
		{"unknown fields", encodeEnvelope([]byte(`{"version":1,"node":"dgx-1","pods":[],"x":1}`)), "unknown field"},
		{"another node's", encodeEnvelope([]byte(`{"version":1,"node":"dgx-2","pods":[]}`)), `belongs to node "dgx-2", not to "dgx-1"`},
		{"a pod without name", encodeEnvelope([]byte(`{"version":1,"node":"dgx-1","pods":[{"uid":"a"}]}`)), "no unique UID"},
		{
			"one device twice", encodeEnvelope([]byte(`{"version":1,"node":"dgx-1","pods":[
			{"uid":"a","namespace":"n","name":"a","grants":[{"container":"c","devices":{"nvidia.com/gpu":["GPU-0"]}}]},
			{"uid":"b","namespace":"n","name":"b","grants":[{"container":"c","devices":{"nvidia.com/gpu":["GPU-0"]}}]}]}`)),
			"device GPU-0 is held by pod a and by pod b",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Decode("dgx-1", tc.raw)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// Decode terminates on any content. An accepted checkpoint is unchanged after Encode and
// Decode, and never assigns a device twice.
func FuzzDecode(f *testing.F) {
	valid, err := Encode("dgx-1", New(inventory, deviceHolders()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid, false)
	f.Add(valid[:len(valid)/2], false)
	f.Add([]byte(`{"version":1,"node":"dgx-1","pods":[{"uid":"a","namespace":"n","name":"p","grants":null}]}`), true)
	f.Fuzz(func(t *testing.T, raw []byte, sealed bool) {
		if sealed && json.Valid(raw) {
			// Bypass the checksum, which mutations alone would hardly match.
			raw = encodeEnvelope(raw)
		}
		pods, err := Decode("dgx-1", raw)
		if err != nil {
			return
		}
		s := New(inventory, pods)
		again, err := Encode("dgx-1", s)
		if err != nil {
			t.Fatalf("cannot encode an accepted checkpoint: %v", err)
		}
		if _, err := Decode("dgx-1", again); err != nil {
			t.Fatalf("Decode rejected an encoded checkpoint: %v", err)
		}
		if _, err := s.Admit(Pod{UID: "new"}, []Demand{newDemand("main", LongRunning, gpu, 1)}); err != nil {
			t.Logf("does not fit: %v", err)
		}
	})
}
