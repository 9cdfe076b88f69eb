// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sluice.dev/policies/engine"
)

// errNotLoaded is why nobody may be admitted before the first update.
var errNotLoaded = errors.New("the policies are not loaded yet")

// OnReports calls the function with the reports of each update, and at once with
// those of the last, where there was one. It is called by one goroutine at a time,
// must be quick, and must neither change the reports nor call OnReports itself.
func (k *Keeper) OnReports(listener func([]engine.Report)) {
	k.calling.Lock()
	defer k.calling.Unlock()
	k.mu.Lock()
	k.listeners = append(k.listeners, listener)
	reports := k.reports
	k.mu.Unlock()
	if reports != nil {
		listener(reports)
	}
}

// Report is what became of the policy of this name in the last update; false
// where it was not among those, or nothing was loaded yet.
func (k *Keeper) Report(name string) (engine.Report, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, report := range k.reports {
		if report.Name == name {
			return report, true
		}
	}
	return engine.Report{}, false
}

// Ready is a health check: an error until the Policy objects were read once and
// every built-in policy is in force.
func (k *Keeper) Ready(*http.Request) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reports == nil {
		return errNotLoaded
	}
	return k.notReady
}

// missing names the built-in policies that are not in force.
func missing(builtIn []engine.Source, reports []engine.Report) error {
	inForce := make(map[string]bool, len(reports))
	why := make(map[string][]engine.Problem, len(reports))
	for _, report := range reports {
		inForce[report.Name], why[report.Name] = report.InForce, report.Problems
	}
	var faults []error
	for _, source := range builtIn {
		switch problems := why[source.Name]; {
		case inForce[source.Name]:
		case len(problems) > 0:
			faults = append(faults, fmt.Errorf("the built-in policy %s is not in force: %w", source.Name, problems[0]))
		default:
			faults = append(faults, fmt.Errorf("the built-in policy %s is not in force", source.Name))
		}
	}
	return errors.Join(faults...)
}

// log tells what is wrong with policies, each thing once.
func (k *Keeper) log() {
	said := make(map[string]string)
	for _, report := range k.reports {
		if text := summary(report); text != "" {
			said[report.Name] = text
			if text != k.logged[report.Name] {
				k.Logger.Info("policy", "policy", report.Name, "generation", report.Generation, "inForce", report.InForce, "says", text)
			}
		} else if k.logged[report.Name] != "" {
			k.Logger.Info("the policy is mended", "policy", report.Name, "generation", report.Generation)
		}
	}
	k.logged = said
}

func summary(report engine.Report) string {
	lines := make([]string, 0, len(report.Problems)+len(report.Warnings))
	for _, problem := range append(report.Problems[:len(report.Problems):len(report.Problems)], report.Warnings...) {
		lines = append(lines, problem.Error())
	}
	return strings.Join(lines, "; ")
}
