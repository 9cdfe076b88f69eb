// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine/document"
)

func dataReader(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range e.Update([]Source{{Name: "a", Rego: "package a\n\nwarn contains data.config.a.text\n\nwarn contains x if some x, _ in data.objects.A"}}) {
		if len(report.Problems) > 0 {
			t.Fatal(report.Problems)
		}
	}
	return e
}

func dataVersion(t *testing.T, text string) *Data {
	t.Helper()
	config, err := NewConfigData("a", map[string]any{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	object, err := NewDataObject(map[string]any{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	return NewData([]ConfigData{config}, []ObjectKind{{
		Kind: "A", Scope: ScopeNamespace, Groups: map[string]*ObjectGroup{"n": NewObjectGroup(map[string]DataObject{"a": object})},
	}})
}

// Data, policies and evaluations change and run at once: go test -race.
func TestDataChangesBesideEvaluations(t *testing.T) {
	e := dataReader(t)
	e.UpdateData(dataVersion(t, "first"))
	var versions []*Data
	for i := range 50 {
		versions = append(versions, dataVersion(t, strconv.Itoa(i)))
	}
	review, err := document.Decode([]byte(`{"namespace": "n", "object": {"kind": "Pod"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for _, version := range versions {
			e.UpdateData(version)
		}
	})
	for range 2 {
		running.Go(func() {
			for range 50 {
				set, err := e.Current()
				if err != nil {
					t.Error(err)
					return
				}
				in := Input{Subject: Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod"}, Review: review, Now: time.Unix(0, 0)}
				outcome, err := set.Evaluate(t.Context(), in)
				if err != nil || len(outcome.Warnings) != 2 {
					t.Errorf("%d warnings, %v; want two", len(outcome.Warnings), err)
					return
				}
				_ = set.DigestFor(in.Subject, "n")
			}
		})
	}
	running.Wait()
}
