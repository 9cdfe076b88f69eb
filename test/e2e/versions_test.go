// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

// upgradedProject is the project whose work runs through the upgrade and the rollback.
const upgradedProject = "upgraded"

// upgradeTest is a cluster with the former version, and work that must not notice what follows.
type upgradeTest struct {
	*policyTimeCluster
	// doctor is the cluster with the present version of the command line.
	doctor    *sluiceCluster
	workloads []workload
	clocks    map[string]v1alpha1.WorkloadClockStatus
	pods      map[string]types.UID
	// status has the paths of all fields in the status of Sluice's objects before the upgrade.
	status map[string]bool
	ran    time.Duration
	steps  int
	// lifecycleIsFormer: it does not apply the admission policies of the present version.
	lifecycleIsFormer bool
}

// Sluice is upgraded from the former version and rolled back, one component after the other, so that each pair of components runs
// with one version of difference, both ways. Meanwhile no pod is admitted ungoverned, no field of a status is lost, and no clock is
// reset; afterwards work ends at the time that was announced before. Guards invariants 1, 5 and 8 of the design.
func TestUpgradeAndRollback(t *testing.T) {
	t.Parallel()
	former, present := buildBothVersions(t)
	u := startFormer(t, &former)
	u.lifecycleIsFormer = true
	u.doctor = &sluiceCluster{binary: filepath.Join(present.bin, "sluice"), dir: u.dir}
	stop := u.probeAdmission(t)

	u.apply(t, &present, isDefinition)
	u.check(t, "the CRDs are upgraded")
	u.apply(t, &present, func(o *unstructured.Unstructured) bool {
		return !isDefinition(o) && !isConfiguration(o) && !runsProgram(o)
	})
	for _, component := range []string{"webhook", "lifecycle", "gpuagent"} {
		u.changeVersion(t, &present, component)
		u.lifecycleIsFormer = u.lifecycleIsFormer && component != "lifecycle"
		u.check(t, component+" is upgraded")
	}
	u.apply(t, &former, func(o *unstructured.Unstructured) bool {
		return !isDefinition(o) && !isConfiguration(o) && !runsProgram(o)
	})
	for _, component := range []string{"webhook", "lifecycle", "gpuagent"} {
		u.changeVersion(t, &former, component)
		u.lifecycleIsFormer = u.lifecycleIsFormer || component == "lifecycle"
		u.check(t, component+" is rolled back")
	}
	stop()
	u.checkEnd(t)
}

// startFormer starts a cluster with the former version, its policies and its work.
func startFormer(t *testing.T, former *versionedBuild) *upgradeTest {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sluice-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The cluster's programs are replaced; those of the build are not.
	bin := filepath.Join(dir, "bin")
	if err := os.CopyFS(bin, os.DirFS(former.bin)); err != nil {
		t.Fatal(err)
	}
	s, err := startSluice(t.Context(), bin, filepath.Join(dir, "own"), "--nodes", "2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.teardown(t) })
	u := &upgradeTest{policyTimeCluster: &policyTimeCluster{sluiceCluster: s}, clocks: map[string]v1alpha1.WorkloadClockStatus{}, pods: map[string]types.UID{}}
	if u.clockFile, err = policytime.OpenFile(filepath.Join(u.dir, policytime.FileName), nil); err != nil {
		t.Fatal(err)
	}
	u.mustKubectl(t, "patch", "department", "h2-students", "--type", "merge", "--patch",
		`{"spec":{"nodePools":[{"name":"dgx-mig","gpu":{"guaranteed":"6","limit":"6"}}]}}`)
	u.createForTest(t, &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1alpha1.PolicySpec{
		Rego:        "package team\n\ndeny contains \"the team forbids it\" if input.object.metadata.labels.forbidden\n",
		Enforcement: v1alpha1.EnforcementDeny, Match: v1alpha1.PolicyMatch{Projects: []string{upgradedProject}},
	}})
	u.createGovernedProject(t, "h2-students", upgradedProject, newPoolQuota("dgx-mig", "500m", "1"))
	u.workloads = []workload{
		newJobWorkload(upgradedProject, "train", migDevice, withWorkloadType(v1alpha1.WorkloadTrain)),
		newDeploymentWorkload(upgradedProject, "web", migDevice),
	}
	u.startWorkloads(t, u.workloads...)
	u.ran = 22 * time.Hour
	u.advanceTime(t, u.ran)
	for _, w := range u.workloads {
		u.clocks[w.GetName()] = u.waitForClock(t, w, "has a deadline", func(s *v1alpha1.WorkloadClockStatus) bool { return s.Deadline != nil })
	}
	for _, pod := range u.listPods(t, upgradedProject) {
		u.pods[pod.Name] = pod.UID
	}
	u.eventuallyAfterStep(t, func() error { return u.checkAdmission(t.Context()) })
	u.status = u.statusPaths(t)
	return u
}

// checkAdmission creates pods that are not stored. It fails unless the policies of Sluice and of the team decide about them.
func (u *upgradeTest) checkAdmission(ctx context.Context) error {
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pods := u.clientset.CoreV1().Pods(upgradedProject)
	pod, err := pods.Create(ctx, newPod(upgradedProject, "probe"), dryRun)
	if err != nil {
		return fmt.Errorf("an ordinary pod is refused: %w", err)
	}
	if pod.Labels[v1alpha1.LabelProject] != upgradedProject || pod.Annotations[v1alpha1.AnnotationDecisions] == "" {
		return fmt.Errorf("a pod was admitted ungoverned: labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	_, err = pods.Create(ctx, newPod(upgradedProject, "probe", func(p *corev1.Pod) { p.Labels["forbidden"] = "yes" }), dryRun)
	if err == nil {
		return fmt.Errorf("a pod was admitted that the team forbids")
	}
	if !strings.Contains(err.Error(), "the team forbids it") {
		return fmt.Errorf("a pod is refused for another reason: %w", err)
	}
	return nil
}

// probeAdmission creates pods until stop is called. A call that fails since a replica of the webhook ended is no defect here: the
// embedded cluster has one replica, which does not drain.
func (u *upgradeTest) probeAdmission(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var probes sync.WaitGroup
	var decided, refused atomic.Int64
	probes.Go(func() {
		for ctx.Err() == nil {
			err := u.checkAdmission(ctx)
			switch {
			case ctx.Err() != nil:
			case err == nil:
				decided.Add(1)
			case strings.Contains(err.Error(), "failed calling webhook") || apierrors.IsTooManyRequests(err):
				refused.Add(1)
			default:
				t.Errorf("during an upgrade: %v", err)
				return
			}
		}
	})
	return func() {
		cancel()
		probes.Wait()
		t.Logf("%d pods were decided about, %d were refused because a replica ended", decided.Load(), refused.Load())
		if decided.Load() < 100 {
			t.Error("too few pods were decided about: the test shows nothing")
		}
	}
}

// check lets an hour pass, and checks that all components work and that nothing changed for the work that runs.
func (u *upgradeTest) check(t *testing.T, when string) {
	t.Helper()
	u.steps++
	u.ran += time.Hour
	u.advanceTime(t, time.Hour)
	began := time.Now().Truncate(time.Second)
	// Lifecycle serves a new project, whose pod runs.
	name := fmt.Sprint("step-", u.steps)
	u.createGovernedProject(t, "h2-students", name, newPoolQuota("dgx-mig", "0", "1"))
	u.startWorkloads(t, newPodWorkload(name, "worker", migDevice, withWorkloadType(v1alpha1.WorkloadTrain)))
	// The agents report. Samples have machine time.
	u.eventuallyAfterStep(t, func() error {
		for _, node := range []string{"dgx-1", "dgx-2"} {
			object := &v1alpha1.GPUNode{}
			if err := u.adminClient.Get(t.Context(), client.ObjectKey{Name: node}, object); err != nil {
				return err
			}
			if sampled := object.Status.SampledAt; sampled == nil || sampled.Time.Before(began) {
				return unexpectedState(node+" was sampled after "+began.String(), sampled)
			}
		}
		return u.checkStatus(t)
	})
	for _, w := range u.workloads {
		before := u.clocks[w.GetName()]
		u.assertClockKept(t, when, w, before.StartedAt, u.ran)
		if now := u.clockStatus(t, w); now.Deadline == nil || !now.Deadline.At.Equal(&before.Deadline.At) {
			t.Errorf("when %s, the deadline of %s is %+v, and was %s", when, w.GetName(), now.Deadline, before.Deadline.At)
		}
	}
	u.assertRunning(t, "when "+when, u.workloads...)
	for _, pod := range u.listPods(t, upgradedProject) {
		if u.pods[pod.Name] != pod.UID || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("when %s, pod %s is %s, and another one than before (%v)", when, pod.Name, pod.Status.Phase, u.pods)
		}
	}
	u.eventuallyAfterStep(t, func() error {
		report, _, err := u.doctor.doctor(t.Context(), "--dir", u.dir)
		if err != nil {
			return err
		}
		found := report.problems()
		maps.DeleteFunc(found, func(check, result string) bool {
			return result != "Error" || u.lifecycleIsFormer && check == "admission-policies"
		})
		if len(found) > 0 {
			return fmt.Errorf("when %s, sluice doctor finds %v: %+v", when, found, report.Checks)
		}
		return nil
	})
}

// checkStatus returns an error if a field of a status was lost.
func (u *upgradeTest) checkStatus(t *testing.T) error {
	t.Helper()
	now := u.statusPaths(t)
	lost := slices.Sorted(maps.Keys(u.status))
	lost = slices.DeleteFunc(lost, func(path string) bool { return now[path] })
	if len(lost) > 0 {
		return unexpectedState("no field of a status is lost", lost)
	}
	return nil
}

// statusPaths returns the paths of the fields in the status of all objects of Sluice, and those of the conditions.
func (u *upgradeTest) statusPaths(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, kind := range []string{"Department", "Project", "NodePool", "GPUNode", "Policy", "WorkloadClock", "UsageRecord", "Notice", "AdmissionParameters"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.Group, Version: "v1alpha1", Kind: kind + "List"})
		if err := u.adminClient.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if status, ok := list.Items[i].Object["status"]; ok {
				addPaths(found, kind+" "+list.Items[i].GetNamespace()+"/"+list.Items[i].GetName(), status)
			}
		}
	}
	if len(found) < 100 {
		t.Fatalf("the objects have %d fields in their status: %v", len(found), found)
	}
	return found
}

// addPaths adds the paths of a value's fields. Of lists it adds only the entries that have a type or a name: others come and go.
func addPaths(to map[string]bool, path string, value any) {
	to[path] = true
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			addPaths(to, path+"."+key, field)
		}
	case []any:
		for _, entry := range value {
			object, ok := entry.(map[string]any)
			if !ok {
				continue
			}
			for _, key := range []string{"type", "name"} {
				if name, ok := object[key].(string); ok {
					to[path+"["+name+"]"] = true
				}
			}
		}
	}
}

// checkEnd checks that the work gets each warning once, at its time, and ends at the time that was announced.
func (u *upgradeTest) checkEnd(t *testing.T) {
	t.Helper()
	for n, lead := range universityLeads {
		for _, w := range u.workloads {
			if at := u.deadline(t, w).Add(-lead); at.After(u.clockFile.Now()) {
				u.advanceTimeTo(t, at)
			}
			u.waitForClock(t, w, fmt.Sprintf("has %d warnings", n+1), func(s *v1alpha1.WorkloadClockStatus) bool { return len(s.Leads) == n+1 })
		}
	}
	u.assertRunning(t, "before the deadlines", u.workloads...)
	for _, w := range u.workloads {
		if now, before := u.deadline(t, w), u.clocks[w.GetName()].Deadline.At; !before.Time.Equal(now) {
			t.Errorf("the deadline of %s is %s, and was %s before the upgrade", w.GetName(), now, before)
		}
	}
	_, last := u.deadlineRange(t, u.workloads)
	u.advanceTimeTo(t, last)
	u.assertStopped(t, v1alpha1.EndMaxRuntime, 48*time.Hour, u.workloads...)
	warnings := map[string]int{}
	for _, n := range u.listNotices(t, upgradedProject) {
		if n.Spec.Lead != nil {
			warnings[fmt.Sprintf("%s %s %s", n.Spec.Subject.Name, n.Spec.Lead.Length(), n.Spec.Deadline)]++
		}
	}
	if want := len(universityLeads) * len(u.workloads); len(warnings) != want {
		raw, _ := json.Marshal(warnings)
		t.Errorf("%d warnings were sent, want %d: %s", len(warnings), want, raw)
	}
}
