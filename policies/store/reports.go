// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sluice.dev/policies/engine"
)

// errNotLoaded is the error before the first update.
var errNotLoaded = errors.New("the policies are not loaded yet")

// OnReports registers a listener for the reports of each update. It calls the listener at once with the last reports, if
// any. Calls never overlap. The listener must be fast, and must neither modify the reports nor call OnReports.
func (s *Store) OnReports(listener func([]engine.Report)) {
	s.listenerMu.Lock()
	defer s.listenerMu.Unlock()
	s.mu.Lock()
	s.listeners = append(s.listeners, listener)
	reports := s.reports
	s.mu.Unlock()
	if reports != nil {
		listener(reports)
	}
}

// Report returns the report of a policy from the last update; false if there is none.
func (s *Store) Report(name string) (engine.Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, report := range s.reports {
		if report.Name == name {
			return report, true
		}
	}
	return engine.Report{}, false
}

// Ready is a health check. It fails until every policy was tried, and while a built-in policy is not in force. Then each
// policy is in force, as it is or in its last good version, or refuses what it matches, or, in Warn and DryRun, is
// skipped.
func (s *Store) Ready(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reports == nil:
		return errNotLoaded
	case s.Objects != nil && !s.objectsLoaded.Load():
		return errObjectsNotLoaded
	}
	return s.notReady
}

// missingBuiltIns returns an error for each built-in policy that is not in force.
func missingBuiltIns(builtIn []engine.Source, reports []engine.Report) error {
	inForce := make(map[string]bool, len(reports))
	problemsByPolicy := make(map[string][]engine.Problem, len(reports))
	for _, report := range reports {
		inForce[report.Name], problemsByPolicy[report.Name] = report.Active, report.Problems
	}
	var faults []error
	for _, source := range builtIn {
		switch problems := problemsByPolicy[source.Name]; {
		case inForce[source.Name]:
		case len(problems) > 0:
			faults = append(faults, fmt.Errorf("the built-in policy %s is not in force: %w", source.Name, problems[0]))
		default:
			faults = append(faults, fmt.Errorf("the built-in policy %s is not in force", source.Name))
		}
	}
	return errors.Join(faults...)
}

// logReports logs the problems of policies once, and when they are fixed.
func (s *Store) logReports() {
	logged := make(map[string]string)
	for _, report := range s.reports {
		if text := summarizeReport(report); text != "" {
			logged[report.Name] = text
			if text != s.logged[report.Name] {
				s.Logger.Info("Policy has problems", "policy", report.Name, "generation", report.Generation, "inForce", report.Active,
					"inForceGeneration", report.EnforcedGeneration, "refusing", report.Refusing, "problems", text)
			}
		} else if s.logged[report.Name] != "" {
			s.Logger.Info("Policy has no more problems", "policy", report.Name, "generation", report.Generation)
		}
	}
	s.logged = logged
}

func summarizeReport(report engine.Report) string {
	lines := make([]string, 0, len(report.Problems)+len(report.Warnings))
	for _, problem := range append(report.Problems[:len(report.Problems):len(report.Problems)], report.Warnings...) {
		lines = append(lines, problem.Error())
	}
	lines = append(lines, report.Missing...)
	return strings.Join(lines, "; ")
}
