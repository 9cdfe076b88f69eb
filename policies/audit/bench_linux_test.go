// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/workbench"
)

// generatedPods lists pods of projects page by page, made when they are read, as an API server decodes them.
type generatedPods struct {
	client.Reader
	raw      string // a pod with two verbs: namespace and name
	projects int
	pods     int
}

func (g *generatedPods) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	page, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return errors.New("not unstructured")
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	first, _ := strconv.Atoi(o.Continue)
	for i := first; i < g.pods; i++ {
		if int64(i-first) == o.Limit {
			page.SetContinue(strconv.Itoa(i))
			break
		}
		var object unstructured.Unstructured
		text := strings.NewReplacer("NAMESPACE", projectName(i*g.projects/g.pods), "NAME", fmt.Sprintf("pod-%06d", i)).Replace(g.raw)
		if err := object.UnmarshalJSON([]byte(text)); err != nil {
			return err
		}
		page.Items = append(page.Items, object)
	}
	return nil
}

func projectName(i int) string { return fmt.Sprintf("project-%04d", i) }

// BenchmarkAudit audits 10,000 pods of 100 projects under 50 policies: the built-in ones, and policies of which one in ten refuses
// or changes each pod. The peak is that of the process, with lifecycle's memory limit.
func BenchmarkAudit(b *testing.B) {
	const pods, projects, count = 10_000, 100, 50
	debug.SetMemoryLimit(220 << 20)
	sources := policies.BuiltIn()
	for i := len(sources); i < count; i++ {
		rules := fmt.Sprintf("deny contains msg if {\n\tsome c in input.object.spec.containers\n\tstartswith(c.image, \"registry-%d.example.org/\")\n\tmsg := c.name\n}", i)
		if i%10 == 0 {
			rules = fmt.Sprintf("deny contains msg if {\n\tsome c in input.object.spec.containers\n\tnot startswith(c.image, \"registry-%d.example.org/\")\n\tmsg := sprintf(\"container %%s\", [c.name])\n}", i)
		}
		sources = append(sources, source(fmt.Sprintf("team-%d", i), "", rules))
	}
	cluster, err := workbench.NewCluster(sources)
	if err != nil {
		b.Fatal(err)
	}
	var all []v1alpha1.Project
	for i := range projects {
		all = append(all, newProject(projectName(i)))
	}
	tenants := newTenants(all...)
	walk := &audit.Walk{
		Reader: &generatedPods{raw: admittedPod(b, tenants), projects: projects, pods: pods}, Mapper: newMapper(kubernetesKinds()[0]),
		Tenants: tenants, Limits: audit.DefaultLimits, Auditor: cluster.Auditor(auditTime),
	}
	b.ReportAllocs()
	var report *audit.Report
	for b.Loop() {
		if report, err = walk.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if report.Evaluated != pods {
		b.Fatalf("evaluated %d objects", report.Evaluated)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/pods, "µs/pod")
	b.ReportMetric(float64(report.Total().Violations()), "violations")
	b.ReportMetric(peakMiB(b), "peak-MiB")
}

// admittedPod returns the JSON of a pod as it exists after its admission, for any namespace and name.
func admittedPod(b *testing.B, tenants *audit.Tenants) string {
	b.Helper()
	tenant, err := tenants.Get(projectName(0))
	if err != nil {
		b.Fatal(err)
	}
	pod := parse(b, `{apiVersion: v1, kind: Pod, metadata: {name: NAME, labels: {app: a, version: "1"}, annotations: {a: b}},
		spec: {containers: [{name: main, image: "registry-1.example.org/a", command: [python, train.py], resources: {limits: {nvidia.com/gpu: "1", memory: 4Gi}, requests: {cpu: "2"}},
		env: [{name: A, value: b}, {name: C, value: d}], volumeMounts: [{name: data, mountPath: /data}]}], volumes: [{name: data, emptyDir: {}}]}}`)
	builtIn, err := workbench.NewCluster(policies.BuiltIn())
	if err != nil {
		b.Fatal(err)
	}
	decided, err := builtIn.Decide(b.Context(), workbench.Request{
		Object: pod.Object, Tenant: tenant, Namespace: projectName(0), User: "anna", Now: auditTime,
	})
	if err != nil || len(decided.Denials()) > 0 {
		b.Fatal(err, decided.Denials())
	}
	pod.Object = decided.Object
	pod.SetNamespace("NAMESPACE")
	raw, err := pod.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), projectName(0), "NAMESPACE")
}

// peakMiB returns the largest resident size of the process.
func peakMiB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
