// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// supervisorVariable makes the test binary run as a supervisor in the folder that it names,
// until it is killed.
const supervisorVariable = "SLUICE_TEST_SUPERVISE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(supervisorVariable); dir != "" {
		runSupervisor(dir)
	}
	if path := os.Getenv(holderVariable); path != "" {
		holdLock(path)
		return
	}
	os.Exit(m.Run())
}

func runSupervisor(dir string) {
	g, err := NewGroup(dir)
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"one", "two"} {
		if err := g.Start(context.Background(), shellSpec(name, "trap '' TERM INT HUP; exec sleep 1000")); err != nil {
			panic(err)
		}
	}
	for _, s := range g.List() {
		fmt.Println(s.PID)
	}
	select {}
}

// shellSpec returns a component that runs a shell script.
func shellSpec(name, script string) Spec {
	return Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}, StopTimeout: time.Minute}
}

// readLog returns a probe that succeeds when the component's log contains the word.
func readLog(g *Group, name, word string) func(context.Context) error {
	return func(context.Context) error {
		log, err := os.ReadFile(filepath.Join(logsIn(g.dir), name+".log"))
		if err == nil && !strings.Contains(string(log), word) {
			err = fmt.Errorf("the log does not contain %q yet", word)
		}
		return err
	}
}

func newGroup(t *testing.T) *Group {
	t.Helper()
	g, err := NewGroup(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return g
}

func start(t *testing.T, g *Group, spec Spec) {
	t.Helper()
	if err := g.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, g *Group, name string) Status {
	t.Helper()
	for _, s := range g.List() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no component %q in %v", name, g.List())
	return Status{}
}

// waitTimeout is for a machine on which much else runs. It only delays a failure.
const waitTimeout = 5 * time.Minute

// waitForState returns the first status of a component that fulfills the condition.
func waitForState(t *testing.T, g *Group, name, what string, condition func(Status) bool) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	var last Status
	for list := range g.Watch(ctx) {
		for _, s := range list {
			if s.Name != name {
				continue
			}
			if last = s; condition(s) {
				return s
			}
		}
	}
	t.Fatalf("%s is not %s; last status %+v", name, what, last)
	return Status{}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func isAlive(t *testing.T, pid int) bool {
	t.Helper()
	born, err := startID(pid)
	if err != nil {
		t.Fatal(err)
	}
	return born != ""
}

func kill(t *testing.T, pid int) {
	t.Helper()
	victim, err := os.FindProcess(pid)
	if err == nil {
		err = victim.Kill()
	}
	if err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

func TestStartReturnsWhenReady(t *testing.T) {
	g := newGroup(t)
	spec := shellSpec("web", "echo warming up; echo serving; exec sleep 1000")
	spec.Ready = readLog(g, "web", "serving")
	start(t, g, spec)

	s := status(t, g, "web")
	if s.State != Running || !isAlive(t, s.PID) {
		t.Errorf("after Start: %+v", s)
	}
	if err := g.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second component of the same name: %v", err)
	}
}

func TestFailedStart(t *testing.T) {
	never := func(context.Context) error { return errors.New("still warming up") }
	tests := []struct {
		name string
		spec Spec
		want []string
	}{
		{
			"ends before it is ready",
			Spec{Path: "/bin/sh", Args: []string{"-c", "echo cannot read config; exit 3"}, Ready: never},
			[]string{"start web: it ended before it was ready: exit status 3", "cannot read config", "web.log"},
		},
		{
			"is killed before it is ready",
			Spec{Path: "/bin/sh", Args: []string{"-c", "kill -9 $$"}, Ready: never},
			[]string{"signal: killed", "is empty"},
		},
		{
			"is not ready in time",
			Spec{Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}, Ready: never, ReadyTimeout: time.Second},
			[]string{"not ready after 1s; last error: still warming up", "web.log"},
		},
		{"does not exist", Spec{Path: "/nowhere/web"}, []string{"start web: ", "/nowhere/web", "no such file"}},
		{
			"function returns before it is ready",
			Spec{Run: func(context.Context) error { return errors.New("no socket") }, Ready: never},
			[]string{"it ended before it was ready: no socket"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroup(t)
			tt.spec.Name = "web"
			err := g.Start(t.Context(), tt.spec)
			var failed *StartError
			if !errors.As(err, &failed) {
				t.Fatalf("got %v, want a *StartError", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if list := g.List(); len(list) != 0 {
				t.Errorf("the component is still in the group: %+v", list)
			}
			if records, _ := filepath.Glob(filepath.Join(recordsIn(g.dir), "*")); len(records) != 0 {
				t.Errorf("remaining records: %v", records)
			}
			start(t, g, shellSpec("web", "exec sleep 1000")) // the name is free again
		})
	}
}

func TestStartCanceled(t *testing.T) {
	g := newGroup(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	spec := shellSpec("web", "exec sleep 1000")
	spec.Ready = func(context.Context) error { cancel(errors.New("canceled by the test")); return errors.New("no") }
	if err := g.Start(ctx, spec); err == nil || !strings.Contains(err.Error(), "canceled by the test") {
		t.Errorf("got %v", err)
	}
}

func TestSpecValidation(t *testing.T) {
	run := func(context.Context) error { return nil }
	tests := []struct {
		name string
		spec Spec
		want string
	}{
		{"no name", Spec{Run: run}, `Spec.Name "": must be`},
		{"a path as name", Spec{Name: "../web", Run: run}, `Spec.Name "../web"`},
		{"upper case", Spec{Name: "Web", Run: run}, `Spec.Name "Web"`},
		{"too long", Spec{Name: strings.Repeat("a", 64), Run: run}, "at most 63"},
		{"neither program nor function", Spec{Name: "web"}, "either Path or Run"},
		{"both", Spec{Name: "web", Run: run, Path: "/bin/true"}, "either Path or Run"},
		{"arguments for a function", Spec{Name: "web", Run: run, Args: []string{"-v"}}, "belong to Path"},
		{"negative timeout", Spec{Name: "web", Run: run, StopTimeout: -1}, "must not be negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := newGroup(t).Start(t.Context(), tt.spec)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestCrashedComponentRestartsWithBackOff(t *testing.T) {
	g := newGroup(t)
	start(t, g, shellSpec("web", "exit 7"))
	// A back-off may be over before a busy machine observes it. The log keeps all of them.
	s := waitForState(t, g, "web", "in its third back-off", func(s Status) bool { return s.State == BackOff && s.Restarts >= 2 })
	if got, want := s.NextStart.Sub(s.LastExitAt), backOff(s.Restarts+1); got != want {
		t.Errorf("back-off %d is %s, want %s", s.Restarts+1, got, want)
	}
	if s.LastExit != "exit status 7" || s.PID != 0 {
		t.Errorf("in back-off %d: %+v", s.Restarts+1, s)
	}
	eventually(t, "the third back-off is logged", func() bool { return readLog(g, "web", "started again in 800ms")(t.Context()) == nil })
	log, err := os.ReadFile(s.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	rest := string(log)
	for _, want := range []string{"200ms", "400ms", "800ms"} {
		var found bool
		if _, rest, found = strings.Cut(rest, "web ended: exit status 7; started again in "+want); !found {
			t.Errorf("the log lacks a back-off of %s, or has it too early:\n%s", want, log)
		}
	}
}

func TestBackOff(t *testing.T) {
	var got []time.Duration
	for crashes := range 12 {
		got = append(got, backOff(crashes))
	}
	ms, s := time.Millisecond, time.Second
	want := []time.Duration{
		0, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 30 * s,
		30 * s, 30 * s,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestKilledComponentRestarts(t *testing.T) {
	g := newGroup(t)
	spec := shellSpec("web", "echo serving; exec sleep 1000")
	spec.Ready = readLog(g, "web", "serving")
	start(t, g, spec)
	first := status(t, g, "web")
	kill(t, first.PID)
	second := waitForState(t, g, "web", "running again", func(s Status) bool { return s.State == Running && s.Restarts == 1 })
	if second.PID == first.PID || !isAlive(t, second.PID) || isAlive(t, first.PID) {
		t.Errorf("process %d, then %d", first.PID, second.PID)
	}
	if second.LastExit != "signal: killed" {
		t.Errorf("last exit %q", second.LastExit)
	}
}

func TestFunctionRestarts(t *testing.T) {
	g := newGroup(t)
	n := 0
	start(t, g, Spec{Name: "kubelet", Run: func(ctx context.Context) error {
		n++
		fmt.Fprintln(Log(ctx), "run", n)
		switch n {
		case 1:
			panic("nil map")
		case 2:
			return errors.New("lost the API server")
		}
		<-ctx.Done()
		return nil
	}})
	s := waitForState(t, g, "kubelet", "in its third run", func(s Status) bool { return s.State == Running && s.Restarts == 2 })
	if s.LastExit != "lost the API server" || s.PID != 0 {
		t.Errorf("status %+v", s)
	}
	eventually(t, "a line of the third run", func() bool { return readLog(g, "kubelet", "run 3\n")(t.Context()) == nil })
	log, err := os.ReadFile(s.LogPath)
	for _, want := range []string{"run 1\n", "panic: nil map", "TestFunctionRestarts", "run 3\n", "started again in 200ms"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("log (%v) lacks %q:\n%s", err, want, log)
		}
	}
}

func TestStopIsInReverseOrder(t *testing.T) {
	g := newGroup(t)
	var mu sync.Mutex
	var order []string
	for _, name := range []string{"etcd", "apiserver", "webhook"} {
		start(t, g, Spec{Name: name, Run: func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return nil
		}})
	}
	if err := g.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"webhook", "apiserver", "etcd"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for _, s := range g.List() {
		if s.State != Stopped {
			t.Errorf("after Stop: %+v", s)
		}
	}
	if err := g.Start(t.Context(), shellSpec("late", "exec sleep 1000")); !errors.Is(err, ErrStopped) {
		t.Errorf("Start after Stop: %v", err)
	}
}

func TestStopKillsUnresponsiveComponent(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration // of the component's StopTimeout
		ctx     time.Duration // of Stop's context
	}{
		{"after the component's timeout", 200 * time.Millisecond, 2 * waitTimeout},
		{"when the context ends", 2 * waitTimeout, 200 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroup(t)
			spec := shellSpec("unresponsive", "trap '' TERM; echo unresponsive; exec sleep 1000")
			spec.StopTimeout, spec.Ready = tt.timeout, readLog(g, "unresponsive", "unresponsive")
			start(t, g, spec)
			pid := status(t, g, "unresponsive").PID
			ctx, cancel := context.WithTimeout(t.Context(), tt.ctx)
			defer cancel()
			if err := g.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			if isAlive(t, pid) {
				t.Errorf("process %d is alive", pid)
			}
			if s := status(t, g, "unresponsive"); s.State != Stopped || s.LastExit != "signal: killed" {
				t.Errorf("after Stop: %+v", s)
			}
		})
	}
}

func TestStopDuringBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		start(t, g, Spec{Name: "web", Run: func(context.Context) error { return errors.New("no socket") }})
		waitForState(t, g, "web", "in a long back-off", func(s Status) bool { return s.State == BackOff && s.Restarts >= 2 })
		begin := time.Now()
		if err := g.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("Stop waited %s for an ended component", took)
		}
	})
}

func TestStopAbandonsUnresponsiveFunction(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGroup(dir)
		if err != nil {
			t.Fatal(err)
		}
		free := make(chan struct{})
		defer close(free)
		start(t, g, Spec{Name: "stuck", StopTimeout: time.Millisecond, Run: func(context.Context) error { <-free; return nil }})
		if err := g.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "stuck does not end") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRestart(t *testing.T) {
	g := newGroup(t)
	start(t, g, shellSpec("web", "exec sleep 1000"))
	first := status(t, g, "web")
	if err := g.Restart(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	second := status(t, g, "web")
	if second.PID == first.PID || second.State != Running || second.Restarts != 1 {
		t.Errorf("before %+v, after %+v", first, second)
	}
	if err := g.Restart(t.Context(), "wbe"); err == nil || !strings.Contains(err.Error(), `"wbe"`) {
		t.Errorf("restart of a missing component: %v", err)
	}
}

func TestRestartReportsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		broken := false
		start(t, g, Spec{
			Name: "web", Run: func(ctx context.Context) error { <-ctx.Done(); return nil },
			Ready: func(context.Context) error {
				if broken {
					return errors.New("bad configuration")
				}
				return nil
			},
		})
		broken = true
		if err := g.Restart(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "bad configuration") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRemove(t *testing.T) {
	g := newGroup(t)
	start(t, g, shellSpec("one", "exec sleep 1000"))
	start(t, g, shellSpec("two", "exec sleep 1000"))
	pid := status(t, g, "one").PID
	if _, err := g.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if list := g.List(); isAlive(t, pid) || len(list) != 1 || list[0].Name != "two" {
		t.Errorf("after Remove: %+v", list)
	}
	start(t, g, shellSpec("one", "exec sleep 1000"))
}

func TestWatchSendsLatest(t *testing.T) {
	g := newGroup(t)
	ctx, cancel := context.WithCancel(t.Context())
	watch := g.Watch(ctx)
	for i := range 5 {
		start(t, g, shellSpec("c"+strconv.Itoa(i), "exec sleep 1000"))
	}
	// One unread list is buffered, and it is the newest.
	if list := <-watch; len(list) != 5 || list[4].State != Running {
		t.Errorf("got %+v", list)
	}
	cancel()
	for range watch { // closed after the end of the context
	}
}

func TestProgramEnvironment(t *testing.T) {
	t.Setenv("ETCD_DATA_DIR", "/elsewhere")
	g := newGroup(t)
	spec := shellSpec("etcd", `echo "dir=$ETCD_DATA_DIR path=$PATH name=$NAME" ; echo done; exec sleep 1000`)
	spec.Env, spec.Ready = []string{"NAME=sluice"}, readLog(g, "etcd", "done")
	start(t, g, spec)
	got, err := Tail(status(t, g, "etcd").LogPath, 10)
	if want := "dir= path=" + os.Getenv("PATH") + " name=sluice\ndone"; err != nil || got != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

func TestConcurrentUse(t *testing.T) {
	g := newGroup(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := "c" + strconv.Itoa(i)
			if err := g.Start(t.Context(), shellSpec(name, "exec sleep 1000")); err != nil {
				t.Error(err)
			}
			if err := g.Restart(t.Context(), name); err != nil {
				t.Error(err)
			}
			g.List()
		})
	}
	all.Wait()
	if got := len(g.List()); got != 8 {
		t.Errorf("%d components, want 8", got)
	}
}

func TestStopDuringStart(t *testing.T) {
	g := newGroup(t)
	called := make(chan struct{}, 1)
	spec := shellSpec("slow", "exec sleep 1000")
	spec.Ready = func(context.Context) error {
		select {
		case called <- struct{}{}:
		default:
		}
		return errors.New("not yet")
	}
	failed := make(chan error)
	go func() { failed <- g.Start(context.Background(), spec) }()
	<-called
	if err := g.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, ErrStopped) {
		t.Errorf("got %v", err)
	}
}

// A component of ReadyLater may take any time to become ready, may end before, and may be
// restarted meanwhile.
func TestReadyLater(t *testing.T) {
	g := newGroup(t)
	spec := shellSpec("late", "echo started; exec sleep 1000")
	ready := filepath.Join(t.TempDir(), "ready")
	spec.ReadyLater, spec.ReadyTimeout = true, time.Nanosecond
	spec.Ready = func(context.Context) error {
		_, err := os.Stat(ready)
		return err
	}
	start(t, g, spec)
	if s := status(t, g, "late"); s.State != Starting || s.PID == 0 {
		t.Errorf("after the start: %+v", s)
	}
	first := status(t, g, "late").PID
	if err := g.Restart(t.Context(), "late"); err != nil {
		t.Fatal(err)
	}
	if s := status(t, g, "late"); s.State != Starting || s.Restarts != 1 || s.PID == first || s.LastExitCode != 128+15 {
		t.Errorf("after a restart: %+v, before it was process %d", s, first)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the component to be ready", func() bool { return status(t, g, "late").State == Running })
}

func TestRestartAfter(t *testing.T) {
	g := newGroup(t)
	flag := filepath.Join(t.TempDir(), "flag")
	spec := shellSpec("job", "test -e "+flag+" && exit 0; touch "+flag+"; exit 7")
	spec.ReadyLater, spec.RestartAfter = true, func(code int) bool { return code != 0 }
	start(t, g, spec)
	eventually(t, "the second run to succeed", func() bool { return status(t, g, "job").State == Exited })
	if s := status(t, g, "job"); s.Restarts != 1 || s.LastExitCode != 0 || s.PID != 0 {
		t.Errorf("status = %+v, want one restart after exit code 7", s)
	}
	if _, err := g.Remove(t.Context(), "job"); err != nil {
		t.Errorf("remove a component that has ended: %v", err)
	}
}

func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as other users")
	}
	g := newGroup(t)
	spec := shellSpec("other", "id -u; id -g; exec sleep 1000")
	spec.User, spec.WorkDir = &User{UID: 65532, GID: 65533}, "/"
	spec.Ready = readLog(g, "other", "65532\n65533\n")
	start(t, g, spec)
}
