// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// countingMapper counts the questions.
type countingMapper struct {
	*meta.DefaultRESTMapper
	asked int
}

func (m *countingMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.asked++
	return m.DefaultRESTMapper.RESTMapping(kind, versions...)
}

// A kind that is not installed is looked up once in a while, also for many projects, and one that is installed later is
// found. Guards the time in which GPUs are free when a thousand projects are suspended.
func TestMissingKindIsRemembered(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	counting := &countingMapper{DefaultRESTMapper: meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "kubeflow.org", Version: "v1"}})}
	mapper := &missingKinds{RESTMapper: counting, now: func() time.Time { return now }, missing: map[string]missingKind{}}
	kind := schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"}
	for range 1000 {
		if _, err := mapper.RESTMapping(kind.GroupKind()); !meta.IsNoMatchError(err) {
			t.Fatalf("the kind that is not installed: %v", err)
		}
	}
	if counting.asked != 1 {
		t.Errorf("asked %d times, want once", counting.asked)
	}
	counting.Add(kind, meta.RESTScopeNamespace)
	now = now.Add(missingKindTTL)
	for range 2 {
		if mapping, err := mapper.RESTMapping(kind.GroupKind()); err != nil || mapping.Resource.Resource != "pytorchjobs" {
			t.Errorf("the installed kind: %+v, %v", mapping, err)
		}
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Kind: "Other"}); !meta.IsNoMatchError(err) || len(mapper.missing) != 1 {
		t.Errorf("%v; %d kinds are remembered, want those of the last %s", err, len(mapper.missing), missingKindTTL)
	}
}
