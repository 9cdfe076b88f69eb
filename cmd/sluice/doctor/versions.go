// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The supported minor versions of Kubernetes 1.
const (
	oldestKubernetes = 32
	newestKubernetes = 36
)

// release is the major and minor version of a program.
type release struct{ major, minor int }

var releasePattern = regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})(\.|$|[^0-9.])`)

// parseRelease returns the release of a version such as v1.34.2 or v0.3.0-12-g1a2b3c4. It returns false for others,
// such as a commit.
func parseRelease(version string) (release, bool) {
	found := releasePattern.FindStringSubmatch(version)
	if found == nil {
		return release{}, false
	}
	major, _ := strconv.Atoi(found[1]) // at most six digits
	minor, _ := strconv.Atoi(found[2])
	return release{major, minor}, true
}

func checkKubernetesVersion(o *Observation) (out outcome) {
	if reason := firstUnread(o.Kubernetes); reason != "" {
		return skip("%s", reason)
	}
	supported := fmt.Sprintf("1.%d to 1.%d", oldestKubernetes, newestKubernetes)
	version, ok := parseRelease(o.Kubernetes.Value)
	switch {
	case !ok:
		out.add(Warning, "", fmt.Sprintf("the API server reports the version %q, which is none of Kubernetes", o.Kubernetes.Value),
			"compare it with the supported versions, "+supported)
	case version.major < 1 || version.major == 1 && version.minor < oldestKubernetes:
		out.add(Error, "", fmt.Sprintf("Kubernetes %s is older than the supported versions, %s", o.Kubernetes.Value, supported),
			"upgrade the cluster before you install or upgrade Sluice")
	case version.major > 1 || version.minor > newestKubernetes:
		out.add(Warning, "", fmt.Sprintf("Kubernetes %s is newer than the tested versions, %s", o.Kubernetes.Value, supported),
			"use a release of Sluice that supports it, or try Sluice on a test cluster of this version first")
	}
	out.ok = fmt.Sprintf("Kubernetes %s is supported (%s)", o.Kubernetes.Value, supported)
	return out
}

// requiredAPIs are the APIs that every installation uses, and why.
var requiredAPIs = map[string]string{
	"admissionregistration.k8s.io/v1/validatingadmissionpolicies":       "Sluice's admission policies",
	"admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": "Sluice's admission policies",
	"admissionregistration.k8s.io/v1/validatingwebhookconfigurations":   "Sluice's webhook",
	"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations":     "Sluice's webhook",
	"apiextensions.k8s.io/v1/customresourcedefinitions":                 "Sluice's objects",
	"apps/v1/controllerrevisions":                                       "the last good versions of policies",
	"coordination.k8s.io/v1/leases":                                     "leader election and the counts of the webhook's replicas",
	"discovery.k8s.io/v1/endpointslices":                                "the webhook's Service",
	"policy/v1/poddisruptionbudgets":                                    "disruption budgets",
	"scheduling.k8s.io/v1/priorityclasses":                              "the order of preemption",
	"v1/resourcequotas":                                                 "the quotas of projects",
}

func checkAPIs(o *Observation) (out outcome) {
	if reason := firstUnread(o.Resources); reason != "" {
		return skip("%s", reason)
	}
	for _, api := range slices.Sorted(maps.Keys(requiredAPIs)) {
		if !o.Resources.Value[api] {
			out.add(Error, "", fmt.Sprintf("the API server does not serve %s, which is used for %s", api, requiredAPIs[api]),
				"enable it in the API server (--runtime-config), or upgrade Kubernetes")
		}
	}
	out.ok = fmt.Sprintf("all %d required APIs are served", len(requiredAPIs))
	return out
}

// componentVersion is the version of one running component.
type componentVersion struct{ component, version string }

// componentVersions returns the versions of the images of Sluice's Deployments and DaemonSet.
func componentVersions(o *Observation) []componentVersion {
	var found []componentVersion
	addImages := func(component string, pod *corev1.PodSpec) {
		for i := range pod.Containers {
			if version := ImageTag(pod.Containers[i].Image); version != "" && strings.Contains(pod.Containers[i].Image, "sluice") {
				found = append(found, componentVersion{component, version})
			}
		}
	}
	for i := range o.Deployments.Value {
		d := &o.Deployments.Value[i]
		addImages("Deployment "+d.Namespace+"/"+d.Name, &d.Spec.Template.Spec)
	}
	for i := range o.DaemonSets.Value {
		d := &o.DaemonSets.Value[i]
		addImages("DaemonSet "+d.Namespace+"/"+d.Name, &d.Spec.Template.Spec)
	}
	return found
}

// ImageTag returns the tag of an image, without a digest; empty without a tag.
func ImageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	at := strings.LastIndexByte(image, ':')
	if at < 0 || strings.Contains(image[at:], "/") {
		return ""
	}
	return image[at+1:]
}

// checkVersions compares the components with each other and with this program. One minor version apart is supported,
// as during an upgrade.
func checkVersions(o *Observation) (out outcome) {
	all := componentVersions(o)
	if len(all) == 0 {
		if reason := firstUnread(o.Deployments, o.DaemonSets); reason != "" {
			return skip("%s", reason)
		}
		return skip("no component reports its version")
	}
	const align = "upgrade or roll back until all components have the same version: first the CRDs, then webhook, lifecycle and agents"
	all = append(all, componentVersion{"this command", o.CLIVersion})
	for i, one := range all {
		for _, other := range all[i+1:] {
			a, okA := parseRelease(one.version)
			b, okB := parseRelease(other.version)
			apart := fmt.Sprintf("%s has version %s, %s has %s", one.component, one.version, other.component, other.version)
			switch {
			case one.version == other.version:
			case !okA || !okB:
				out.add(Warning, "", apart+"; the two cannot be compared", align)
			case a.major != b.major || abs(a.minor-b.minor) > 1:
				out.add(Error, "", apart+"; more than one minor version apart is not supported", align)
			}
		}
	}
	var texts []string
	for _, c := range all {
		texts = append(texts, c.component+" "+c.version)
	}
	out.ok = strings.Join(texts, ", ")
	return out
}

func abs(n int) int { return max(n, -n) }
