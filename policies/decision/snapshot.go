// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// Snapshot is all of a tenant that decides on its objects, so that a decision can be repeated later.
type Snapshot struct {
	// Project and Department are the names.
	Project    string `json:"project"`
	Department string `json:"department"`
	// TimeZone is the department's time zone.
	TimeZone string `json:"timeZone"`
	// Input has the project, department, nodePools, namespace and use of input, by these names.
	Input map[string]json.RawMessage `json:"input"`
	// MaxLabels and MaxAnnotations are the limits of its objects; 0 means the default.
	MaxLabels      int `json:"maxLabels,omitempty"`
	MaxAnnotations int `json:"maxAnnotations,omitempty"`
	// AddedTemplates are the pod templates of kinds that Sluice does not know, by Kind.group.
	AddedTemplates map[string][][]string `json:"addedTemplates,omitempty"`
	// Listed are the extended resources that the cluster's objects list.
	Listed workload.ListedResources `json:"listed,omitzero"`
	// PausedUntil is the end of the pause in force, in policy time; zero without one.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
}

// Snapshot returns the tenant's snapshot.
func (t *Tenant) Snapshot() (*Snapshot, error) {
	s := &Snapshot{
		Project: t.Project, Department: t.Department, TimeZone: t.TimeZone.String(), PausedUntil: t.PausedUntil,
		MaxLabels: t.SizeLimits.Labels, MaxAnnotations: t.SizeLimits.Annotations,
		Input: make(map[string]json.RawMessage), Listed: t.Listed,
	}
	for _, part := range t.Documents.named() {
		raw, err := part.document.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode input of project %s: %w", t.Project, err)
		}
		s.Input[part.name] = raw
	}
	if len(t.AddedTemplates) > 0 {
		s.AddedTemplates = make(map[string][][]string, len(t.AddedTemplates))
		for kind, paths := range t.AddedTemplates {
			s.AddedTemplates[kind.String()] = paths
		}
	}
	return s, nil
}

// Tenant returns the tenant of a snapshot. It has only what decides on pods and workloads: not the owners, nor the
// longest extension.
func (s *Snapshot) Tenant() (*Tenant, error) {
	if s.Project == "" || s.Department == "" {
		return nil, errors.New("project and department: a tenant has both")
	}
	t := &Tenant{
		Project: s.Project, Department: s.Department, PausedUntil: s.PausedUntil,
		SizeLimits: SizeLimits{Labels: s.MaxLabels, Annotations: s.MaxAnnotations}, Listed: s.Listed, Units: s.Listed.Units(),
	}
	var err error
	if t.TimeZone, err = time.LoadLocation(s.TimeZone); err != nil {
		return nil, fmt.Errorf("timeZone: %w", err)
	}
	for _, part := range t.Documents.named() {
		if *part.document, err = document.Decode(s.Input[part.name]); err != nil {
			return nil, fmt.Errorf("input.%s: %w", part.name, err)
		}
	}
	if len(s.AddedTemplates) > 0 {
		t.AddedTemplates = make(workloadkind.AddedTemplates, len(s.AddedTemplates))
		for kind, paths := range s.AddedTemplates {
			t.AddedTemplates[schema.ParseGroupKind(kind)] = paths
		}
	}
	if err := json.Unmarshal(s.Input["nodePools"], &t.NodePools); err != nil {
		return nil, fmt.Errorf("input.nodePools: %w", err)
	}
	schedulers := make([]v1alpha1.Scheduler, len(t.NodePools))
	for i := range t.NodePools {
		schedulers[i] = t.NodePools[i].Scheduler
	}
	t.Schedulers = engine.SchedulersOf(schedulers...)
	t.Version, err = t.digest()
	return t, err
}
