// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/utilization"
)

// newExporterPod returns a running pod with a container.
func newExporterPod(namespace, image, ip string, ports ...corev1.ContainerPort) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "exporter"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "nginx"}, {Image: image, Ports: ports}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip},
	}
}

// Only a pod in one of the configured namespaces is the exporter. Guards invariant 4: no user poses as it.
func TestExporterAddress(t *testing.T) {
	const image = "nvcr.io/nvidia/k8s/dcgm-exporter:3.3.5-ubuntu22.04"
	pending := newExporterPod("gpu-operator", image, "10.0.0.1")
	pending.Status.Phase = corev1.PodPending
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"the exporter":            {newExporterPod("gpu-operator", image, "10.0.0.1"), "10.0.0.1:9400"},
		"by digest":               {newExporterPod("gpu-operator", "registry:5000/dcgm-exporter@sha256:0", "10.0.0.1"), "10.0.0.1:9400"},
		"another port":            {newExporterPod("gpu-operator", image, "fd00::1", corev1.ContainerPort{Name: "metrics", ContainerPort: 9500}), "[fd00::1]:9500"},
		"a user's namespace":      {newExporterPod("thesis-mueller", image, "10.0.0.1"), ""},
		"another image":           {newExporterPod("gpu-operator", "nvidia/dcgm:1", "10.0.0.1"), ""},
		"a similar image":         {newExporterPod("gpu-operator", "x/not-dcgm-exporter", "10.0.0.1"), ""},
		"not running":             {pending, ""},
		"without a pod's address": {newExporterPod("gpu-operator", image, ""), ""},
	} {
		var cfg Config
		cfg.Default()
		if got := exporterAddress([]corev1.Pod{{}, tc.pod}, cfg.DCGMExporter.Namespaces); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	var cfg Config
	cfg.Default()
	for _, namespace := range cfg.DCGMExporter.Namespaces {
		if !slices.Contains(tenancy.ExemptNamespaces(), namespace) {
			t.Errorf("a project may have the namespace %s", namespace)
		}
	}
}

// The exporter's answers are bounded, and a redirect is none.
func TestReadExporter(t *testing.T) {
	status, text := http.StatusOK, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-1",GPU_I_ID="1"} 0.5`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			t.Errorf("it reads %s", r.URL.Path)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	pods := []corev1.Pod{newExporterPod("gpu-operator", "dcgm-exporter", host, corev1.ContainerPort{Name: "metrics", ContainerPort: int32(number)})}
	e := &exporterReader{
		log: logr.Discard(), namespaces: []string{"gpu-operator"}, interval: time.Minute,
		pods: func(context.Context) ([]corev1.Pod, error) { return pods, nil },
	}
	e.read(t.Context())
	if got := e.latest.Load(); got == nil || got.busy[utilization.Instance{GPU: "GPU-1", ID: 1}] != 50 {
		t.Fatalf("%+v", got)
	}
	for _, status = range []int{http.StatusFound, http.StatusInternalServerError} {
		if _, err := e.fetch(t.Context()); err == nil {
			t.Errorf("status %d is no error", status)
		}
	}
	before := e.latest.Load()
	if e.read(t.Context()); !e.failed || e.latest.Load() != before {
		t.Error("a failed request replaces the last reading")
	}
	pods = nil
	if e.read(t.Context()); e.failed || len(e.latest.Load().busy) != 0 {
		t.Errorf("without an exporter: %+v", e.latest.Load())
	}
}

// The driver gives the identifier of a former instance to the next one. What the exporter says counts only once
// it was reloaded after the change and collected twice since. Guards invariant 12: no use of a former pod counts.
func TestExporterCountsAfterReload(t *testing.T) { synctest.Test(t, testExporterCountsAfterReload) }

func testExporterCountsAfterReload(t *testing.T) {
	n := newSampledNode(t, "A100-40GB/mig")
	n.addPod("a")
	n.addProcess(5_000_001, "a", n.gpus[0].Instances[0].UUID, 100, 50)
	gpu := string(n.gpus[0].UUID)
	report := func() {
		busy := map[utilization.Instance]int{}
		for id := range n.sampler.instances(gpu) {
			busy[utilization.Instance{GPU: gpu, ID: id}] = 70
		}
		n.sampler.exporter.latest.Store(&exporterReading{at: time.Now(), busy: busy})
	}
	check := func(name string, source v1alpha1.UtilizationSource, known bool) {
		t.Helper()
		got := n.sample()
		use := got.Pods[podUID("a")]
		if got.Sources[gpu] != source || len(use.Devices) != 1 || (use.Devices[0].Busy != nil) != known || known && *use.Devices[0].Busy != 70 {
			t.Errorf("%s: source %s, use %+v; want source %s, known %v", name, got.Sources[gpu], use.Devices, source, known)
		}
		if !n.sampler.exporter.needed.Load() {
			t.Errorf("%s: nothing requests the exporter", name)
		}
	}
	check("no exporter", v1alpha1.UtilizationUnavailable, false)
	report()
	check("just after the agent's start", v1alpha1.UtilizationDCGM, false)
	time.Sleep(time.Minute)
	report()
	check("a minute later", v1alpha1.UtilizationDCGM, true)
	time.Sleep(2 * time.Minute)
	check("an exporter that stopped", v1alpha1.UtilizationUnavailable, false)
	report()
	check("an exporter that answers again", v1alpha1.UtilizationDCGM, true)

	if err := n.DestroyComputeInstance(gpu, 0, 0); err == nil {
		t.Fatal("destroyed in use")
	}
	n.gpus[0].Instances[0].UUID += "-next" // the next instance has the identifier of the former
	report()
	n.exporterOutdated = true
	check("after a change", v1alpha1.UtilizationDCGM, false)
	time.Sleep(5 * time.Minute)
	report()
	check("not reloaded yet", v1alpha1.UtilizationDCGM, false)
	n.exporterOutdated, n.exporterReloadedAt = false, time.Now()
	report()
	check("just reloaded", v1alpha1.UtilizationDCGM, false)
	time.Sleep(40 * time.Second)
	report()
	time.Sleep(20 * time.Second)
	check("a reading from before", v1alpha1.UtilizationDCGM, false)
	report()
	check("collected twice", v1alpha1.UtilizationDCGM, true)
	if memory := n.sampler.latest.Load().Pods[podUID("a")].MemoryMiB; memory == nil || *memory != 100 {
		t.Errorf("memory %v", memory)
	}
}
