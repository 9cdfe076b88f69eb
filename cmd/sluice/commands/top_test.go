// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/printer"
)

// topUUID returns the UUID of a GPU.
func topUUID(n int) string { return "GPU-00000000-0000-0000-0000-00000000000" + strconv.Itoa(n) }

// usedPod returns the usage of a pod. A negative idle time is an unknown one, as is a memory or share below 0.
func usedPod(namespace, name string, share, memory int64, idle time.Duration, devices ...string) v1alpha1.PodUsage {
	use := v1alpha1.PodUsage{
		PodReference: v1alpha1.PodReference{UID: types.UID(namespace + name), Namespace: namespace, Name: name}, Devices: devices, ShareMiB: max(share, 0),
	}
	if memory >= 0 {
		use.MemoryMiB = &memory
	}
	if idle >= 0 {
		use.LastActive = clockTime(-12*time.Second - idle)
	}
	return use
}

// sampleNodes returns a node with whole GPUs and one in MIG mode, and one whose agent is gone.
func sampleNodes() []v1alpha1.GPUNode {
	return []v1alpha1.GPUNode{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"},
			Spec:       v1alpha1.GPUNodeSpec{NodePool: "dgx"},
			Status: v1alpha1.GPUNodeStatus{
				SampledAt: clockTime(-12 * time.Second),
				GPUs: []v1alpha1.ObservedGPU{
					{UUID: v1alpha1.GPUUUID(topUUID(0)), Index: 0, Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, Health: v1alpha1.GPUHealthy, UtilizationSource: v1alpha1.UtilizationNVML},
					{
						UUID: v1alpha1.GPUUUID(topUUID(1)), Index: 1, Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, Health: v1alpha1.GPUHealthy, UtilizationSource: v1alpha1.UtilizationNVML,
						OtherProcesses: []v1alpha1.OtherProcess{
							{PID: 4711, Name: "python3", Kind: v1alpha1.OtherSlurm, Owner: "job 463", MemoryMiB: ptr.To[int64](2048)},
							{PID: 12, Name: "Xorg", Kind: v1alpha1.OtherHost},
						}, OtherProcessesOmitted: 1,
					},
					{
						UUID: v1alpha1.GPUUUID(topUUID(2)), Index: 10, Model: "Ev\x1b[2Jil\u202e", MemoryMiB: 40960, UtilizationSource: v1alpha1.UtilizationUnavailable,
						Instances: []v1alpha1.ObservedInstance{
							{Profile: "3g.20gb", Start: 4, UUID: "MIG-1", State: v1alpha1.InstanceActive},
							{Profile: "1g.5gb", State: v1alpha1.InstanceCreating},
						},
					},
				},
				Findings: []v1alpha1.Finding{
					{PodUID: "thesisnotebook", Reason: v1alpha1.FindingShareExceeded, Since: *clockTime(-time.Hour), Device: topUUID(1), ExcessMiB: 2048},
					{PodUID: "thesisnotebook", Reason: v1alpha1.FindingNotAllocated, Since: *clockTime(-time.Hour), Device: topUUID(0), ExcessMiB: 10},
				},
				Pods: []v1alpha1.PodUsage{
					usedPod("protein-folding", "folding-0", 40960, 39936, 0, topUUID(0)),
					usedPod("thesis", "notebook", 20480, 512, 2*time.Hour, topUUID(1)),
					usedPod("thesis", "second", 20480, 0, 30*time.Second, topUUID(1)),
					usedPod("campus-assistant", "chat", -1, 18432, -1, "MIG-1"),
				},
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "dgx-2"},
			Status: v1alpha1.GPUNodeStatus{
				SampledAt: clockTime(-2 * time.Hour),
				GPUs:      []v1alpha1.ObservedGPU{{UUID: v1alpha1.GPUUUID(topUUID(3)), UtilizationSource: v1alpha1.UtilizationGPM}},
				Pods: []v1alpha1.PodUsage{
					usedPod("outside", "stray", -1, -1, 3*time.Hour, topUUID(3)),
					usedPod("protein-folding", "wide", 81920, 65536, 2*time.Hour, topUUID(3), topUUID(4)),
				},
			},
		},
	}
}

func usageOfClock(share, memory int64, idle time.Duration, age time.Duration) *v1alpha1.ClockGPUUsage {
	u := &v1alpha1.ClockGPUUsage{SampledAt: clockTime(-age)}
	if share >= 0 {
		u.ShareMiB = &share
	}
	if memory >= 0 {
		u.MemoryMiB = &memory
	}
	if idle >= 0 {
		u.LastActive = clockTime(-age - idle)
	}
	return u
}

// sampleUsedClocks returns the clocks of a namespace that hold GPUs, and one that does not.
func sampleUsedClocks() []v1alpha1.WorkloadClock {
	newUsedClock := func(kind, name, gpus string, idleSince *metav1.Time, use *v1alpha1.ClockGPUUsage) v1alpha1.WorkloadClock {
		s := v1alpha1.WorkloadClockStatus{State: v1alpha1.ClockStateRunning, GPUUsage: use, IdleSince: idleSince}
		if gpus != "" {
			s.GPUs = ptr.To(resource.MustParse(gpus))
		}
		return newClock("thesis", kind, name, s)
	}
	return []v1alpha1.WorkloadClock{
		newUsedClock("Job", "train", "2", nil, usageOfClock(81920, 65536, 0, 4*time.Minute)),
		newUsedClock("Pod", "notebook", "500m", clockTime(-50*time.Minute), usageOfClock(20480, 100, 10*time.Minute, 40*time.Minute)),
		newUsedClock("Job", "blind", "1", nil, usageOfClock(-1, 2048, -1, time.Minute)),
		newUsedClock("Job", "stale", "1", nil, usageOfClock(-1, 2048, 0, 20*time.Minute)),
		newUsedClock("Job", "new", "1", nil, nil),
		newUsedClock("Job", "over", "", nil, usageOfClock(-1, -1, -1, time.Hour)),
		newUsedClock("Ev\x1b[2Jil", "a\nb", "1", nil, nil),
	}
}

func TestTopOutput(t *testing.T) {
	nodes := topObservation{source: sourceNodes, now: clocksNow, nodes: sampleNodes(), projects: sampleProjects}
	clocks := topObservation{source: sourceClocks, now: clocksNow, clocks: sampleUsedClocks(), projects: sampleProjects, namespace: "thesis"}
	hour := time.Hour
	for name, tc := range map[string]struct {
		view     topView
		observed topObservation
	}{
		"pods":             {topView{resource: topPods, sort: sortByProject}, nodes},
		"pods-wide":        {topView{resource: topPods, sort: sortByProject, wide: true}, nodes},
		"pods-idle":        {topView{resource: topPods, sort: sortByIdle, filter: topFilter{idle: &hour}}, nodes},
		"pods-project":     {topView{resource: topPods, sort: sortByMemory, filter: topFilter{project: "thesis-mueller"}}, nodes},
		"pods-node":        {topView{resource: topPods, sort: sortByShare, filter: topFilter{node: "dgx-1"}}, nodes},
		"projects":         {topView{resource: topProjects, sort: sortByProject}, nodes},
		"devices":          {topView{resource: topDevices}, nodes},
		"devices-wide":     {topView{resource: topDevices, wide: true}, nodes},
		"devices-project":  {topView{resource: topDevices, filter: topFilter{project: "thesis-mueller"}}, nodes},
		"workloads":        {topView{resource: topPods, sort: sortByProject}, clocks},
		"workloads-by-sum": {topView{resource: topProjects, sort: sortByProject}, clocks},
	} {
		tc.view.zone = time.UTC
		rows, table := tc.view.rows(tc.observed)
		var text bytes.Buffer
		if err := table.Write(&text, tc.view.wide); err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, text.String(), "top/"+name+".txt")
		if !tc.view.wide {
			golden.Assert(t, jsonText(t, rows), "top/"+name+".json")
		}
	}
}

// Unknown figures are never 0, and never part of a sum.
func TestUnknownFiguresStayUnknown(t *testing.T) {
	known := newUseFigures(ptr.To[int64](100), ptr.To[int64](50), clockTime(-time.Minute), clockTime(0))
	busy := newUseFigures(nil, nil, clockTime(0), clockTime(0))
	unknown := newUseFigures(nil, nil, nil, clockTime(0))
	for name, f := range map[string]useFigures{
		"nothing":             combineFigures(nil),
		"an unknown pod":      combineFigures([]useFigures{known, unknown}),
		"a first unknown pod": combineFigures([]useFigures{unknown, known}),
	} {
		if f.ShareMiB != nil || f.MemoryMiB != nil || f.Use != useUnknown || f.IdleSeconds != nil || f.LastActive != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f := combineFigures([]useFigures{known, unknown, busy}); f.Use != useBusy || f.IdleSeconds != nil || f.ShareMiB != nil {
		t.Errorf("a busy pod: %+v", f)
	}
	if f := combineFigures([]useFigures{known, known}); f.Use != useIdle || *f.IdleSeconds != 60 || *f.ShareMiB != 200 || *f.MemoryMiB != 100 {
		t.Errorf("idle pods: %+v", f)
	}
	// No agent writes these.
	hostile := newUseFigures(ptr.To[int64](-1), ptr.To[int64](1<<62), clockTime(time.Hour), clockTime(0))
	if f := combineFigures([]useFigures{hostile, hostile, hostile}); f.ShareMiB != nil || f.MemoryMiB != nil || f.Use != useBusy {
		t.Errorf("figures out of range: %+v", f)
	}
}

// A user who may not list GPUNodes sees the workloads of one namespace.
func TestTopReader(t *testing.T) {
	objects := []client.Object{}
	for _, node := range sampleNodes() {
		objects = append(objects, &node)
	}
	for _, clock := range sampleUsedClocks()[:4] {
		objects = append(objects, &clock)
	}
	other := newClock("lab", "Job", "foreign", v1alpha1.WorkloadClockStatus{GPUs: ptr.To(resource.MustParse("1"))})
	objects = append(objects, &other)
	for namespace, project := range sampleProjects {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{v1alpha1.LabelProject: project}}})
	}
	project := &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "thesis-mueller"}, Spec: v1alpha1.ProjectSpec{Namespace: "thesis"}}
	admin := newFakeClient(t, interceptor.Funcs{}, append(objects, project)...)
	for name, tc := range map[string]struct {
		client client.Client
		view   topView
		namespace,
		err string
		rows int
	}{
		"an administrator":                          {admin, topView{resource: topPods}, "lab", "", 6},
		"an administrator in a namespace":           {admin, topView{resource: topPods, filter: topFilter{namespace: "thesis"}}, "thesis", "", 2},
		"an administrator in a project":             {admin, topView{resource: topPods, filter: topFilter{project: "thesis-mueller"}}, "lab", "", 2},
		"a member":                                  {asProjectMember(admin), topView{resource: topPods}, "thesis", "", 4},
		"a member by project":                       {asProjectMember(admin), topView{resource: topPods, filter: topFilter{project: "thesis-mueller"}}, "lab", "", 4},
		"a member's project":                        {asProjectMember(admin), topView{resource: topProjects}, "thesis", "", 1},
		"a member in another namespace":             {asProjectMember(admin), topView{resource: topPods}, "lab", "name a namespace with -n", 0},
		"a member who requests devices":             {asProjectMember(admin), topView{resource: topDevices}, "thesis", "devices are for users who may list GPUNodes", 0},
		"a member who requests a node":              {asProjectMember(admin), topView{resource: topPods, filter: topFilter{node: "dgx-1"}}, "thesis", "--node is for users", 0},
		"a member in a namespace without workloads": {asProjectMember(newFakeClient(t, interceptor.Funcs{})), topView{resource: topPods}, "thesis", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc.view.zone = time.UTC
			reader := &topReader{client: tc.client, clock: policytime.System(), namespace: tc.namespace, filter: tc.view.filter}
			observed, err := tc.view.read(t.Context(), reader)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("err = %v, want it to contain %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, table := tc.view.rows(observed); len(table.Rows) != tc.rows {
				t.Errorf("%d rows, want %d", len(table.Rows), tc.rows)
			}
			text, err := tc.view.text(t.Context(), reader)
			if err != nil || strings.Contains(text, "You may not list GPUNodes") == strings.HasPrefix(name, "an administrator") || strings.Contains(text, "foreign") {
				t.Errorf("it shows %v\n%s", err, text)
			}
		})
	}
}

func TestTopRejectsInvalidFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", writeKubeconfig(t, t.TempDir(), "none", "default"))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"top", "nodes"}, `invalid argument "nodes"`},
		{[]string{"top", "pods", "devices"}, "accepts at most 1 arg"},
		{[]string{"top", "--sort", "utilization"}, "want project, name, node, share, memory or idle"},
		{[]string{"top", "--idle", "1 hour"}, "want a duration of at least 0"},
		{[]string{"top", "--idle", "-1h"}, "want a duration of at least 0"},
		{[]string{"top", "-n", "a", "--project", "b"}, "none of the others can be"},
	} {
		if _, err := runCommand(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
}

// No name sends control characters to a terminal.
func FuzzTopTables(f *testing.F) {
	f.Add("Ev\x1b[2Jil", "a\nb", int64(-1), int64(1<<62))
	f.Fuzz(func(t *testing.T, name, other string, memory, at int64) {
		pod := v1alpha1.PodUsage{
			PodReference: v1alpha1.PodReference{Namespace: name, Name: other}, Devices: []string{other}, MemoryMiB: &memory, ShareMiB: memory,
			LastActive: &metav1.Time{Time: time.Unix(at, 0)},
		}
		gpu := v1alpha1.ObservedGPU{UUID: v1alpha1.GPUUUID(other), Model: name, MemoryMiB: memory, Index: int32(at), UtilizationSource: v1alpha1.UtilizationSource(name)}
		node := v1alpha1.GPUNode{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v1alpha1.GPUNodeStatus{GPUs: []v1alpha1.ObservedGPU{gpu}, Pods: []v1alpha1.PodUsage{pod, pod}, SampledAt: clockTime(0)},
		}
		clock := newClock("lab", "Job", name, v1alpha1.WorkloadClockStatus{GPUs: resource.NewMilliQuantity(memory, resource.DecimalSI)})
		for _, resource := range []string{topPods, topProjects, topDevices} {
			view := topView{resource: resource, zone: time.UTC}
			observed := topObservation{source: sourceNodes, now: clocksNow, nodes: []v1alpha1.GPUNode{node}, clocks: []v1alpha1.WorkloadClock{clock}, projects: map[string]string{name: other}}
			_, table := view.rows(observed)
			var text bytes.Buffer
			if err := table.Write(&text, true); err != nil {
				t.Fatal(err)
			}
			for _, r := range text.String() {
				if r != '\n' && !strconv.IsGraphic(r) {
					t.Fatalf("%s: the table has %q", resource, r)
				}
			}
		}
	})
}

// The live view refreshes until a key or the end of its context, keeps the last table after an error, and
// restores the screen.
func TestLiveView(t *testing.T) {
	for name, tc := range map[string]struct {
		keys string
		end  bool
	}{
		"q": {"xq", false}, "Q": {"Q", false}, "Ctrl-C": {"\x03", false}, "a signal": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			keys, typed := newKeys()
			defer close(typed)
			var out bytes.Buffer
			refreshes := 0
			view := liveView{
				output: &out, input: keys, interval: time.Millisecond, size: func() (int, int) { return 40, 10 },
				text: func(context.Context) (string, error) {
					switch refreshes++; {
					case refreshes == 1:
						return "", errorWithEscape{}
					case refreshes > 2 && tc.end:
						cancel()
					case refreshes > 2:
						for _, key := range []byte(tc.keys) {
							typed <- key
						}
						tc.keys = ""
					}
					return "second", nil
				},
			}
			if err := view.run(ctx, "first"); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if !strings.HasPrefix(text, enterScreen) || !strings.HasSuffix(text, leaveScreen) || !strings.Contains(text, "second") ||
				!strings.Contains(text, `first`+clearLine+"\r\nThe last refresh failed: ev") || strings.Contains(text, "\x07") {
				t.Errorf("it wrote %q", text)
			}
		})
	}
}

// A panic restores the screen, too.
func TestLiveViewRestoresScreenAfterPanic(t *testing.T) {
	keys, typed := newKeys()
	defer close(typed)
	var out bytes.Buffer
	func() {
		defer func() { _ = recover() }()
		view := liveView{
			output: &out, input: keys, interval: time.Millisecond, size: func() (int, int) { return 40, 10 },
			text: func(context.Context) (string, error) { panic("a bug") },
		}
		_ = view.run(t.Context(), "first")
	}()
	if !strings.HasSuffix(out.String(), leaveScreen) {
		t.Errorf("it wrote %q", out.String())
	}
}

type errorWithEscape struct{}

func (errorWithEscape) Error() string { return "ev\x07il" }

// keyReader is a keyboard.
type keyReader chan byte

func newKeys() (keyReader, chan byte) {
	keys := make(chan byte, 8)
	return keys, keys
}

func (k keyReader) Read(buffer []byte) (int, error) {
	key, open := <-k
	if !open {
		return 0, context.Canceled
	}
	buffer[0] = key
	return 1, nil
}

// A frame fits any terminal: no line is wider, and there are not more lines than rows.
func TestRenderFrame(t *testing.T) {
	table := printer.Table{Columns: printer.Columns("NAME", "MODEL")}
	for i := range 12 {
		table.Rows = append(table.Rows, []string{"名前-" + strconv.Itoa(i), "NVIDIA A100-SXM4-40GB"})
	}
	text := tableText(t, table)
	for _, size := range [][2]int{{80, 24}, {20, 24}, {10, 5}, {80, 2}, {1, 1}, {0, 0}, {-5, -5}} {
		frame := renderFrame(text, "", size[0], size[1])
		lines := strings.Split(strings.NewReplacer(homeCursor, "", clearLine, "", clearBelow, "").Replace(frame), "\r\n")
		if len(lines) > max(size[1], 1) {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if width := lipgloss.Width(line); width > max(size[0], 1) {
				t.Errorf("%v: a line of %d columns: %q", size, width, line)
			}
		}
	}
	golden.Assert(t, strings.NewReplacer(homeCursor, "", clearLine, "", clearBelow, "\n", "\r\n", "\n").Replace(renderFrame(text, "", 20, 8)), "top/narrow.txt")
}
