// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/doctor"
)

func newDoctorReport() *doctor.Report {
	return &doctor.Report{
		Version: "v0.3.0", Server: "https://cluster.example:6443", Kubernetes: "v1.34.2", Installed: true,
		CheckedAt: time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC),
		Summary:   doctor.Summary{OK: 2, Warnings: 1, Errors: 1, Skipped: 2},
		Checks: []doctor.CheckResult{
			{Name: "kubernetes-version", Area: "Cluster", Result: doctor.OK, Message: "Kubernetes v1.34.2 is supported (1.32 to 1.36)"},
			{Name: "webhook-replicas", Area: "Webhook", Result: doctor.OK, Message: "ready replicas: 2"},
			{Name: "webhook-reachable", Area: "Webhook", Result: doctor.Error, Findings: []doctor.Finding{
				{Result: doctor.Error, Message: "the API server cannot call the webhook\x1b[2J", Do: "see its logs\nand its pods"},
			}},
			{Name: "node-pools", Area: "Nodes", Result: doctor.Warning, MoreFindings: 3, Findings: []doctor.Finding{
				{Result: doctor.Warning, Object: "NodePool dgx", Message: "Planned (Full): no room", Do: "kubectl describe slpool dgx"},
			}},
			{Name: "mail", Area: "Mail", Result: doctor.Skipped, Message: "no right to get configmaps"},
			{Name: "notices", Area: "Mail", Result: doctor.Skipped, Message: "no right to get configmaps"},
		},
	}
}

// Problems come first, and one line says why several checks were skipped.
func TestDoctorOutput(t *testing.T) {
	golden.Assert(t, doctorText(newDoctorReport()), "doctor/report.txt")
	golden.Assert(t, jsonText(t, newDoctorReport()), "doctor/report.json")
	preflight := &doctor.Report{
		Version: "v0.3.0", Server: "https://cluster.example:6443", Summary: doctor.Summary{OK: 1, Skipped: 1},
		Checks: []doctor.CheckResult{
			{Name: "kubernetes-version", Area: "Cluster", Result: doctor.OK, Message: "Kubernetes v1.34.2 is supported (1.32 to 1.36)"},
			{Name: "webhook-reachable", Area: "Webhook", Result: doctor.Skipped, Message: "Sluice is not installed in this cluster"},
		},
	}
	golden.Assert(t, doctorText(preflight), "doctor/preflight.txt")
}

func TestDoctorExitStatus(t *testing.T) {
	tests := []struct {
		summary doctor.Summary
		failOn  string
		want    int // 0 for no error
	}{
		{doctor.Summary{OK: 3}, failOnError, 0},
		{doctor.Summary{Warnings: 1}, failOnError, 0},
		{doctor.Summary{Errors: 1}, failOnError, 1},
		{doctor.Summary{Warnings: 1}, failOnWarning, 1},
		{doctor.Summary{Errors: 1}, failOnWarning, 1},
		{doctor.Summary{Skipped: 9}, failOnWarning, 0},
		{doctor.Summary{Errors: 1, Warnings: 1}, failOnNever, 0},
	}
	for _, tc := range tests {
		err := failedChecks(tc.summary, tc.failOn)
		if got := err != nil && ExitStatus(err) == 1; got != (tc.want == 1) {
			t.Errorf("%+v with --fail-on %s: %v", tc.summary, tc.failOn, err)
		}
	}
	if got := ExitStatus(withExitStatus(2, errors.New("no cluster"))); got != 2 {
		t.Errorf("exit status %d, want 2", got)
	}
	if got := ExitStatus(errors.New("any")); got != 1 {
		t.Errorf("exit status %d of other commands, want 1", got)
	}
	for _, args := range [][]string{{"doctor", "--nonsense"}, {"doctor", "argument"}, {"doctor", "--kubeconfig", "/none"}} {
		if _, err := runCommand(t, args...); err == nil || ExitStatus(err) != 2 {
			t.Errorf("%v: %v, exit status %d, want 2", args, err, ExitStatus(err))
		}
	}
}

// A pause is in force by the clock of the API server, as `sluice pause` begins it, not by that of the machine with the command.
func TestDoctorReportsPauseByClockOfAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead time.Duration
		// since and until are relative to the time of this machine.
		since, until time.Duration
		want         doctor.Result
	}{
		"begun on a server that is ahead": {3 * time.Hour, 3 * time.Hour, 5 * time.Hour, doctor.Warning},
		"over on a server that is ahead":  {3 * time.Hour, -time.Hour, time.Hour, doctor.OK},
		"in force on a server behind":     {-3 * time.Hour, -3 * time.Hour, -2 * time.Hour, doctor.Warning},
		"equal clocks":                    {0, -time.Hour, time.Hour, doctor.Warning},
	} {
		t.Run(name, func(t *testing.T) {
			parameters := &v1alpha1.AdmissionParameters{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionParametersName}}
			parameters.Status.Pause = &v1alpha1.Pause{
				Since: metav1.NewTime(pauseNow.Add(tc.since)), Until: metav1.NewTime(pauseNow.Add(tc.until)), By: "petra", Reason: "a broken policy",
			}
			o := doctor.Observation{
				Now: pauseNow, PolicyNow: pauseNow, Parameters: doctor.Read[*v1alpha1.AdmissionParameters]{Value: parameters},
				Resources: doctor.Read[map[string]bool]{Value: map[string]bool{"sluice.dev/v1alpha1/projects": true}},
			}
			correctTimes(t.Context(), newFakeClient(t, asPetraWithClock(tc.ahead)), &o)
			report := doctor.Diagnose(&o)
			for _, c := range report.Checks {
				if c.Name == "pause" && c.Result != tc.want {
					t.Errorf("the pause is %s, want %s, at %s of the server: %+v", c.Result, tc.want, report.CheckedAt, c)
				}
			}
		})
	}
}
