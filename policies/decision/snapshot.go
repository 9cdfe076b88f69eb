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
	// Input has input.project, input.department, input.nodePools, input.namespace and input.use.
	Input struct {
		Project    json.RawMessage `json:"project"`
		Department json.RawMessage `json:"department"`
		NodePools  json.RawMessage `json:"nodePools"`
		Namespace  json.RawMessage `json:"namespace"`
		Use        json.RawMessage `json:"use"`
	} `json:"input"`
	// MaxLabels and MaxAnnotations are the limits of its objects; 0 means the default.
	MaxLabels      int `json:"maxLabels,omitempty"`
	MaxAnnotations int `json:"maxAnnotations,omitempty"`
	// AddedTemplates are the pod templates of kinds that Sluice does not know, by Kind.group.
	AddedTemplates map[string][][]string `json:"addedTemplates,omitempty"`
	// PausedUntil is the end of the pause in force, in policy time; zero without one.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
}

// Snapshot returns the tenant's snapshot.
func (t *Tenant) Snapshot() (*Snapshot, error) {
	s := &Snapshot{
		Project: t.Project, Department: t.Department, TimeZone: t.TimeZone.String(), PausedUntil: t.PausedUntil,
		MaxLabels: t.SizeLimits.Labels, MaxAnnotations: t.SizeLimits.Annotations,
	}
	for _, part := range []struct {
		target *json.RawMessage
		source document.Document
	}{
		{&s.Input.Project, t.Documents.Project},
		{&s.Input.Department, t.Documents.Department},
		{&s.Input.NodePools, t.Documents.NodePools},
		{&s.Input.Namespace, t.Documents.Namespace},
		{&s.Input.Use, t.Documents.Use},
	} {
		var err error
		if *part.target, err = part.source.MarshalJSON(); err != nil {
			return nil, fmt.Errorf("encode input of project %s: %w", t.Project, err)
		}
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
		SizeLimits: SizeLimits{Labels: s.MaxLabels, Annotations: s.MaxAnnotations},
	}
	var err error
	if t.TimeZone, err = time.LoadLocation(s.TimeZone); err != nil {
		return nil, fmt.Errorf("timeZone: %w", err)
	}
	for _, part := range []struct {
		name   string
		target *document.Document
		source json.RawMessage
	}{
		{"project", &t.Documents.Project, s.Input.Project},
		{"department", &t.Documents.Department, s.Input.Department},
		{"nodePools", &t.Documents.NodePools, s.Input.NodePools},
		{"namespace", &t.Documents.Namespace, s.Input.Namespace},
		{"use", &t.Documents.Use, s.Input.Use},
	} {
		if *part.target, err = document.Decode(part.source); err != nil {
			return nil, fmt.Errorf("input.%s: %w", part.name, err)
		}
	}
	if len(s.AddedTemplates) > 0 {
		t.AddedTemplates = make(workloadkind.AddedTemplates, len(s.AddedTemplates))
		for kind, paths := range s.AddedTemplates {
			t.AddedTemplates[schema.ParseGroupKind(kind)] = paths
		}
	}
	if err := json.Unmarshal(s.Input.NodePools, &t.NodePools); err != nil {
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
