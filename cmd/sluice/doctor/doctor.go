// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor checks an installation of Sluice and the cluster below it.
//
// [Observe] reads the cluster with the rights of the user, and remembers what it could not read. [Diagnose] runs
// the checks over what was read. A check is a pure function with a stable name. It finds problems and says what to
// do about each, or it is skipped with the reason. The package changes nothing: its probes are requests with
// dryRun=All.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Result is the result of a check or of one finding.
type Result string

// The results.
const (
	OK      Result = "OK"
	Warning Result = "Warning"
	Error   Result = "Error"
	// Skipped means that the check could not be made; its message has the reason.
	Skipped Result = "Skipped"
)

// severity orders results, the worst first.
func (r Result) severity() int { return slices.Index([]Result{Error, Warning, Skipped, OK}, r) }

// Finding is one problem that a check found.
type Finding struct {
	// Result is Warning or Error.
	Result Result `json:"result"`
	// Object names the object with the problem, such as "NodePool dgx"; empty for the whole cluster.
	Object string `json:"object,omitempty"`
	// Message says what was found.
	Message string `json:"message"`
	// Do says what to do.
	Do string `json:"do"`
}

// maxFindings limits the findings of one check; it counts the others.
const maxFindings = 20

// CheckResult is the result of one check.
type CheckResult struct {
	// Name is the stable name of the check.
	Name string `json:"name"`
	// Area groups the checks.
	Area string `json:"area"`
	// Result is the worst result of the findings; OK without findings, or Skipped.
	Result Result `json:"result"`
	// Message says what is in order, or why the check was skipped. It is empty if there are findings.
	Message string `json:"message,omitempty"`
	// Findings are the problems, the worst first.
	Findings []Finding `json:"findings,omitempty"`
	// MoreFindings is the number of findings beyond the listed ones.
	MoreFindings int `json:"moreFindings,omitempty"`
}

// Summary counts the checks by their result.
type Summary struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Errors   int `json:"errors"`
	Skipped  int `json:"skipped"`
}

// Report is the result of all checks.
type Report struct {
	// Version is that of the command.
	Version string `json:"version"`
	// Server is the URL of the API server, and Kubernetes its version; empty if it is unknown.
	Server     string `json:"server"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// CheckedAt is the time of the checks.
	CheckedAt time.Time `json:"checkedAt"`
	// Installed reports whether any of Sluice's CustomResourceDefinitions exists.
	Installed bool          `json:"installed"`
	Summary   Summary       `json:"summary"`
	Checks    []CheckResult `json:"checks"`
}

// outcome is what a check function returns: findings, or why it was skipped, or what is in order.
type outcome struct {
	findings []Finding
	skipped  string
	ok       string
}

func skip(format string, args ...any) outcome { return outcome{skipped: fmt.Sprintf(format, args...)} }

func (o *outcome) add(result Result, object, message, do string) {
	o.findings = append(o.findings, Finding{Result: result, Object: object, Message: message, Do: do})
}

// check is a check function with its name.
type check struct {
	name, area string
	// preflight checks also make sense before Sluice is installed.
	preflight bool
	run       func(*Observation) outcome
}

// The areas, in the order of the output.
const (
	areaCluster   = "Cluster"
	areaInstalled = "Installation"
	areaWebhook   = "Webhook"
	areaNodes     = "Nodes"
	areaPolicies  = "Policies"
	areaWork      = "Projects and work"
	areaMail      = "Mail"
)

var areas = []string{areaCluster, areaInstalled, areaWebhook, areaNodes, areaPolicies, areaWork, areaMail}

// checks are all checks. Their names are part of the command's interface.
var checks = []check{
	{"kubernetes-version", areaCluster, true, checkKubernetesVersion},
	{"kubernetes-apis", areaCluster, true, checkAPIs},
	{"custom-resource-definitions", areaInstalled, false, checkCRDs},
	{"versions", areaInstalled, false, checkVersions},
	{"lifecycle", areaInstalled, false, checkLifecycle},
	{"webhook-reachable", areaWebhook, false, checkWebhookReachable},
	{"webhook-replicas", areaWebhook, false, checkWebhookReplicas},
	{"webhook-configurations", areaWebhook, false, checkWebhookConfigurations},
	{"webhook-namespaces", areaWebhook, false, checkWebhookNamespaces},
	{"certificates", areaWebhook, false, checkCertificates},
	{"node-pools", areaNodes, false, checkNodePools},
	{"gpus-known", areaNodes, true, checkGPUsKnown},
	{"node-capacity", areaNodes, false, checkNodeCapacity},
	{"unlisted-resources", areaNodes, false, checkUnlistedResources},
	{"agents", areaNodes, false, checkAgents},
	{"gpus", areaNodes, false, checkGPUs},
	{"policies", areaPolicies, false, checkPolicies},
	{"policy-matches", areaPolicies, false, checkPolicyMatches},
	{"admission-policies", areaPolicies, false, checkAdmissionPolicies},
	{"admission-policies-enforced", areaPolicies, false, checkAdmissionEnforced},
	{"projects", areaWork, false, checkProjects},
	{"gpu-pods-outside", areaWork, true, checkOutside},
	{"pause", areaWork, false, checkPause},
	{"stop-limiter", areaWork, false, checkStopLimiter},
	{"unstoppable", areaWork, false, checkUnstoppable},
	{"mail", areaMail, false, checkMail},
	{"notices", areaMail, false, checkNotices},
}

// Diagnose runs all checks.
func Diagnose(o *Observation) Report {
	report := Report{
		Version: o.CLIVersion, Server: o.Server, Kubernetes: o.Kubernetes.Value, CheckedAt: o.Now.UTC().Truncate(time.Second),
		Installed: o.isInstalled(), Checks: make([]CheckResult, 0, len(checks)),
	}
	for _, c := range checks {
		found := skip("Sluice is not installed in this cluster")
		if c.preflight || o.mayBeInstalled() {
			found = c.run(o)
		}
		result := newCheckResult(c, found)
		switch result.Result {
		case Error:
			report.Summary.Errors++
		case Warning:
			report.Summary.Warnings++
		case Skipped:
			report.Summary.Skipped++
		case OK:
			report.Summary.OK++
		}
		report.Checks = append(report.Checks, result)
	}
	return report
}

func newCheckResult(c check, found outcome) CheckResult {
	result := CheckResult{Name: c.name, Area: c.area, Result: OK, Message: found.ok}
	switch {
	case len(found.findings) > 0:
		slices.SortStableFunc(found.findings, func(a, b Finding) int { return cmp.Compare(a.Result.severity(), b.Result.severity()) })
		result.Result, result.Message = found.findings[0].Result, ""
		result.Findings = found.findings[:min(len(found.findings), maxFindings)]
		result.MoreFindings = len(found.findings) - len(result.Findings)
	case found.skipped != "":
		result.Result, result.Message = Skipped, found.skipped
	}
	return result
}

// Areas returns the areas of the report with their checks: those with the worst result first, and within an area
// likewise.
func (r *Report) Areas() [][]CheckResult {
	var grouped [][]CheckResult
	for _, area := range areas {
		var group []CheckResult
		for _, result := range r.Checks {
			if result.Area == area {
				group = append(group, result)
			}
		}
		slices.SortStableFunc(group, compareResults)
		if len(group) > 0 {
			grouped = append(grouped, group)
		}
	}
	slices.SortStableFunc(grouped, func(a, b []CheckResult) int { return compareResults(a[0], b[0]) })
	return grouped
}

// compareResults orders errors before warnings, and both before all others.
func compareResults(a, b CheckResult) int {
	problem := func(r Result) int { return min(r.severity(), Skipped.severity()) }
	return cmp.Compare(problem(a.Result), problem(b.Result))
}
