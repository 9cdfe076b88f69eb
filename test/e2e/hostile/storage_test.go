// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// fillers return an object with about so many bytes in its spec or its data. Kinds without one are filled by annotations alone.
var fillers = map[string]func(bytes int) string{
	"Pod": podFiller("Pod"), "Job": podFiller("Job"), "CronJob": podFiller("CronJob"), "Deployment": podFiller("Deployment"),
	"StatefulSet": podFiller("StatefulSet"), "ReplicaSet": podFiller("ReplicaSet"), "ReplicationController": podFiller("ReplicationController"),
	"ConfigMap": func(bytes int) string { return "{data: {a: " + strings.Repeat("x", bytes) + "}}" },
	"Secret":    func(bytes int) string { return "{stringData: {a: " + strings.Repeat("x", bytes) + "}}" },
	"Ingress": func(bytes int) string {
		var paths strings.Builder
		for range bytes / 4000 {
			paths.WriteString("{path: /" + strings.Repeat("x", 3900) + ", pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}, ")
		}
		return `{spec: {rules: [{host: "a.hostile.example", http: {paths: [` + paths.String() + "]}}]}}"
	},
	"Service": func(bytes int) string { // the API server needs minutes for 15,000 ports
		var ports strings.Builder
		for i := range min(bytes/80, v1alpha1.MaxListEntries) {
			fmt.Fprintf(&ports, "{port: %d, name: p%d}, ", i+1, i)
		}
		return "{spec: {ports: [" + ports.String() + "]}}"
	},
	"PersistentVolumeClaim": nil,
}

func podFiller(kind string) func(int) string {
	return func(bytes int) string {
		var arguments strings.Builder
		for range bytes / 1000 {
			arguments.WriteString(strings.Repeat("x", 997) + ", ")
		}
		return inTemplate(kind, "{spec: {containers: [{name: main, args: ["+arguments.String()+"]}]}}")
	}
}

// storedKinds are the quota's names of the kinds that are filled, and of the objects that controllers create from them.
var storedKinds = map[string]corev1.ResourceName{
	"Pod": "count/pods", "Job": "count/jobs.batch", "CronJob": "count/cronjobs.batch", "Deployment": "count/deployments.apps",
	"StatefulSet": "count/statefulsets.apps", "ReplicaSet": "count/replicasets.apps", "ReplicationController": "replicationcontrollers",
	"ControllerRevision": "count/controllerrevisions.apps", "ConfigMap": "configmaps", "Secret": "secrets", "Service": "services",
	"PersistentVolumeClaim": "persistentvolumeclaims", "Ingress": "count/ingresses.networking.k8s.io",
}

// A project takes a known part of the API server's storage: each object that a member may write has a largest size, and each kind a largest
// number. docs/platform/security.md states the sum. Guards invariant 4 of the design.
func TestShareOfStorage(t *testing.T) {
	w := start(t)
	a := w.attacker(t, editor, kube, w.freshProject(t, kube))
	limits := projectLimits(t, a)
	table := []string{}
	total := 0.0
	add := func(name corev1.ResourceName, mib float64) {
		if limits[name] == 0 {
			t.Errorf("the quota has no %s: %v", name, limits)
		}
		table = append(table, fmt.Sprintf("| `%s` | %d | %.0f KiB | %.0f MiB |", name, limits[name], mib*1024, mib*float64(limits[name])))
		total += mib * float64(limits[name])
		delete(limits, name)
	}
	for kind := range fillers {
		add(storedKinds[kind], a.fill(kind))
	}
	revisions := &unstructured.UnstructuredList{}
	revisions.SetAPIVersion("apps/v1")
	revisions.SetKind("ControllerRevision")
	a.eventually(func() error {
		err := w.Admin.List(t.Context(), revisions, client.InNamespace(a.namespace))
		if err == nil && len(revisions.Items) == 0 {
			err = fmt.Errorf("there is no ControllerRevision")
		}
		return err
	})
	add("count/controllerrevisions.apps", sizeOf(t, &revisions.Items[0]))
	delete(limits, "pods") // are counted by count/pods, too
	if len(limits) > 0 {
		t.Errorf("the quota limits %v, which nothing here creates", limits)
	}
	sort.Strings(table)
	t.Logf("%.2f GiB:\n%s", total/1024, strings.Join(table, "\n"))
	compareWithDocs(t, table, total)
}

// projectLimits returns the numbers of objects in the project's quota.
func projectLimits(t *testing.T, a *attacker) map[corev1.ResourceName]int64 {
	t.Helper()
	limits := map[corev1.ResourceName]int64{}
	a.eventually(func() error {
		var quota corev1.ResourceQuota
		err := a.world.Admin.Get(t.Context(), types.NamespacedName{Namespace: a.namespace, Name: "sluice"}, &quota)
		for name, limit := range quota.Spec.Hard {
			if strings.HasPrefix(string(name), "count/") || !strings.ContainsAny(string(name), "./") {
				limits[name] = limit.Value()
			}
		}
		return err
	})
	return limits
}

// fill creates the largest object of a kind that is accepted, and then the largest annotations, and returns its size in MiB.
func (a *attacker) fill(kind string) float64 {
	a.t.Helper()
	name := "full-" + strings.ToLower(kind)
	object := func(bytes int) *unstructured.Unstructured {
		fragments := []string{idle[kind]}
		if filler := fillers[kind]; filler != nil {
			fragments = append(fragments, filler(bytes))
		}
		object, err := a.ordinary(kind, name, fragments...)
		if err != nil {
			a.t.Fatal(err)
		}
		return object
	}
	largest := 0
	if fillers[kind] != nil {
		largest = a.bisect(func(bytes int) error { return a.create(object(bytes)) })
	}
	stored := object(largest)
	a.dry = false
	defer func() { a.dry = true }()
	if err := a.create(stored); err != nil {
		a.t.Fatalf("create %s with %d bytes: %v", kind, largest, err)
	}
	annotation := func(bytes int) string {
		return `{"metadata":{"annotations":{"filler":"` + strings.Repeat("x", bytes) + `"}}}`
	}
	a.dry = true
	more := a.bisect(func(bytes int) error { return a.patch(stored.DeepCopy(), "", annotation(bytes)) })
	a.dry = false
	if err := a.patch(stored, "", annotation(more)); err != nil {
		a.t.Fatalf("annotate %s with %d bytes: %v", kind, more, err)
	}
	return sizeOf(a.t, stored)
}

// bisect returns the largest number of bytes that is accepted, to 2 KiB. With the largest annotations, an object of the largest number
// that it tries fills the largest request of etcd, 1.5 MiB (--max-request-bytes).
func (a *attacker) bisect(accepts func(bytes int) error) int {
	low, high := 0, 1200<<10
	for high-low > 2<<10 {
		if middle := (low + high) / 2; accepts(middle) == nil {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// sizeOf returns the size of an object in JSON, in MiB.
func sizeOf(t *testing.T, object *unstructured.Unstructured) float64 {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return float64(len(text)) / (1 << 20)
}

var numbers = regexp.MustCompile(`[0-9.]+`)

// compareWithDocs fails if a figure of the documentation differs by more than 2 %.
func compareWithDocs(t *testing.T, table []string, total float64) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/platform/security.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range append(table, fmt.Sprintf("| all of them | | | %.0f MiB |", total)) {
		name, _, _ := strings.Cut(want[2:], " |")
		at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "| "+name+" |") })
		if at < 0 {
			t.Errorf("docs/platform/security.md has no line %s", want)
			continue
		}
		measured, stated := numbers.FindAllString(want, -1), numbers.FindAllString(lines[at], -1)
		for i := range measured {
			m, _ := strconv.ParseFloat(measured[i], 64)
			s := math.NaN()
			if i < len(stated) {
				s, _ = strconv.ParseFloat(strings.ReplaceAll(stated[i], ",", ""), 64)
			}
			if !(math.Abs(m-s) <= 1+m/50) {
				t.Errorf("docs/platform/security.md says\n%s\nmeasured is\n%s", lines[at], want)
				break
			}
		}
	}
}
