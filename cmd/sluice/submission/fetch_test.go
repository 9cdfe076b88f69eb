// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gotest.tools/v3/golden"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sluice.dev/cmd/sluice/submission"
)

// No cluster of the tests has Git or S3: the golden files show which init containers fetch the data.
func TestFetches(t *testing.T) {
	for name, line := range map[string]string{
		"git-and-s3": "train -i a -g 1 --working-dir /code --git-sync source=https://git.example.org/course/model.git,branch=v1.2,secret=git-access,target=/code " +
			"--s3 bucket=course-data,key=images/2026,url=https://s3.example.org,region=eu-central-1,secret=s3-access,target=/data",
		"git-over-ssh": "train -i a --git-sync source=git@git.example.org:course/model.git,rev=0123456789abcdef0123456789abcdef01234567,secret=git-key,target=/code",
		"public":       "train -i a --git-sync source=https://git.example.org/model.git,target=/code --s3 bucket=open-data,url=http://s3.example.org:9000,target=/data",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(strings.Fields(line), "")
			if err != nil {
				t.Fatal(err)
			}
			golden.Assert(t, "# sluice submit "+line+"\n"+got, name+".yaml")
		})
	}
}

// cloningContainer returns the init container of a submission with --git-sync.
func cloningContainer(t *testing.T, value string) corev1.Container {
	t.Helper()
	m, err := submission.ParseMount("--git-sync", value)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := submission.Objects(&submission.Request{
		Name: "n", Image: "a", Mounts: []submission.Mount{m}, Images: map[string]string{"git-image": "git"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var job batchv1.Job
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, &job); err != nil {
		t.Fatal(err)
	}
	return job.Spec.Template.Spec.InitContainers[0]
}

// The sample of manifests/samples has the init containers of the command that it names.
func TestSampleHasInitContainersOfItsCommand(t *testing.T) {
	raw, err := os.ReadFile("../../../manifests/samples/workloads/data-from-s3-and-git.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var line strings.Builder
	for comment := range strings.Lines(string(raw)) {
		if text, isCommand := strings.CutPrefix(comment, "#   "); isCommand && !strings.HasPrefix(text, "kubectl") {
			line.WriteString(strings.TrimSuffix(strings.TrimSpace(text), "\\"))
		}
	}
	arguments := strings.Fields(line.String())
	text, err := render(slices.DeleteFunc(arguments[2:], func(a string) bool { return a == "-n" || a == "course-ml" }), "")
	if err != nil {
		t.Fatal(err)
	}
	var rendered, sample batchv1.Job
	if err := errors.Join(yaml.UnmarshalStrict([]byte(text), &rendered), yaml.UnmarshalStrict(raw, &sample)); err != nil {
		t.Fatal(err)
	}
	want, got := rendered.Spec.Template.Spec.InitContainers, sample.Spec.Template.Spec.InitContainers
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(corev1.Container{}, "Name", "VolumeMounts")); diff != "" || len(want) != 2 {
		t.Errorf("init containers (-command +sample):\n%s", diff)
	}
}

// An init container that runs again keeps a complete clone with the user's changes, and repeats one that was cut short.
func TestCloneRunsAgain(t *testing.T) {
	const source = "https://git.example.org/a.git"
	repository, target := t.TempDir(), t.TempDir()
	run := func(name string, arguments ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, arguments...)
		command.Dir = repository
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v %s", name, arguments, err, out)
		}
	}
	command := cloningContainer(t, "source="+source+",branch=main,target="+target).Command
	run("git", "init", "--initial-branch=main")
	file := filepath.Join(target, "train.py")
	if err := os.WriteFile(filepath.Join(repository, "train.py"), []byte("original"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("git", "add", ".")
	run("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-m", "a")
	for i, argument := range command {
		if argument == source {
			command[i] = "file://" + repository
		}
	}
	if err := os.MkdirAll(filepath.Join(target, ".git"), 0o700); err != nil { // of a clone that was cut short
		t.Fatal(err)
	}
	run(command[0], command[1:]...)
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "original" {
		t.Fatalf("the clone has %q, %v", raw, err)
	}
	if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(command[0], command[1:]...)
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "changed" {
		t.Errorf("after the second run the clone has %q, %v", raw, err)
	}
}

// A Secret's credentials are for the server of the repository and for no other, as git understands the variables.
func TestGitCredentialsAreForOneServer(t *testing.T) {
	container := cloningContainer(t, "source=https://git.example.org:8443/a/b.git,secret=git-access,target=/code")
	environment := append(os.Environ(), "GIT_USERNAME=anna", "GIT_PASSWORD=p%ss'word", "HOME="+t.TempDir())
	for _, variable := range container.Env {
		if variable.Value != "" {
			environment = append(environment, variable.Name+"="+variable.Value)
		}
	}
	for server, want := range map[string]string{"git.example.org:8443": "username=anna\npassword=p%ss'word\n", "evil.example.org": ""} {
		fill := exec.CommandContext(t.Context(), "git", "credential", "fill")
		fill.Env, fill.Stdin = environment, strings.NewReader("protocol=https\nhost="+server+"\n\n")
		out, err := fill.Output()
		if (err == nil) != (want != "") || !strings.HasSuffix(string(out), want) || want == "" && len(out) > 0 {
			t.Errorf("%s gets %q, %v; want %q", server, out, err, want)
		}
	}
}

// Without an image for it, a refusal says who can name one.
func TestFetchesNeedImages(t *testing.T) {
	request, err := parse(strings.Fields("n -i a --git-sync source=https://git.example.org/a,target=/a --s3 bucket=data,url=http://s3,target=/b"), "")
	if err != nil {
		t.Fatal(err)
	}
	request.Images = map[string]string{"s3-image": "--privileged image"}
	want := "--git-sync: this cluster names no image for it; ask your administrators to set git-image in ConfigMap submission of namespace sluice-system\n" +
		`s3-image "--privileged image" in ConfigMap submission of namespace sluice-system: it is no image; ask your administrators to correct it`
	if _, err := submission.Objects(request); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if diff := cmp.Diff([]string{"git-image"}, request.MissingImages()); diff != "" {
		t.Errorf("missing images (-want +got):\n%s", diff)
	}
}

const git, s3, hidden = "--git-sync", "--s3", "hunter2"

// refusedFetches are values of the flags and what their refusals contain.
func refusedFetches() []struct{ flag, text, want string } {
	return []struct{ flag, text, want string }{
		{git, "source=https://git.example.org/a", `key "target" is missing`},
		{git, "target=/a", `key "source" is missing`},
		{git, "source,target=/a", `"source": want source=...,[branch=...]`},
		{git, "source=https://git.example.org/a,target=/a,username=anna,password=hunter2", `key "username": credentials belong in a Secret: secret=NAME`},
		{git, "source=https://anna:hunter2@git.example.org/a,target=/a", "source: want a repository such as"},
		{git, "source=https://hunter2@git.example.org/a,target=/a", "source: want a repository such as"},
		{git, "source=ssh://git:hunter2@git.example.org/a,target=/a", "source: want a repository such as"},
		{git, "https://anna:hunter2@git.example.org/a", "a key is unknown; want source=..."},
		{git, "https://git.example.org/a?token=hunter2", "a key is unknown; want source=..."},
		{git, "hunter2,source=https://git.example.org/a,target=/a", "a key is unknown; want source=..."},
		{git, "source=https://anna:hunter2,a@git.example.org/a,target=/a", "a key is unknown; want source=..."},
		{git, "source=https://anna:a,hunter2@git.example.org/a,target=/a", "a key is unknown; want source=..."},
		{git, "source=https://anna:a,hunter2=b@git.example.org/a,target=/a", "a key is unknown; want source=..."},
		{git, "source=https://git.example.org/a?token=hunter2,target=/a", "source: want a repository such as"},
		{git, "source=https://git.example.org/a,brnch=hunter2,target=/a", `key "brnch" is unknown; want source=...`},
		{git, "source=http://git.example.org/a,secret=git-access,target=/a", "source: want https:// with a secret"},
		{git, "source=git@git.example.org:a,target=/a", "source: SSH needs a key: secret=NAME, a Secret with ssh-privatekey and known_hosts"},
		{git, "source=file:///etc,target=/a", "source: want a repository such as"},
		{git, "source=ext::sh -c id,target=/a", "source: want a repository such as"},
		{git, "source=--upload-pack=id,target=/a", "source: want a repository such as"},
		{git, "source=ssh://-oProxyCommand=id/a,target=/a", "source: want a repository such as"},
		{git, "source=ssh://-oProxyCommand=id@git.example.org/a,target=/a", "source: want a repository such as"},
		{git, "source=ssh://g@it@git.example.org/a,target=/a", "source: want a repository such as"},
		{git, "source=https://git.example.org/a%2,target=/a", "source: want a repository such as"},
		{git, "source=-oProxyCommand=id@host:a,target=/a", "source: want a repository such as"},
		{git, "source=git@-oProxyCommand=id:a,target=/a", "source: want a repository such as"},
		{git, "source=https://git.example.org/a/../../b,target=/a", "source: want a repository such as"},
		{git, "source=https://git.example.org/$(GIT_PASSWORD),target=/a", "source: want a repository such as"},
		{git, "source=https://git.example.org/a\nb,target=/a", "source: want a repository such as"},
		{git, "source=https:///a,target=/a", "source: want a repository such as"},
		{git, "source=https://git.example.org/a,branch=--upload-pack=id,target=/a", "branch: want a branch or a tag"},
		{git, "source=https://git.example.org/a,branch=-b,target=/a", "branch: want a branch or a tag"},
		{git, "source=https://git.example.org/a,branch=a..b,target=/a", "branch: want a branch or a tag"},
		{git, "source=https://git.example.org/a,branch=a\nb,target=/a", "branch: want a branch or a tag"},
		{git, "source=https://git.example.org/a,branch=$(GIT_PASSWORD),target=/a", "branch: want a branch or a tag"},
		{git, "source=https://git.example.org/a,rev=HEAD,target=/a", "rev: want the whole hash of a commit"},
		{git, "source=https://git.example.org/a,rev=-0123456789abcdef0123456789abcdef0123456,target=/a", "rev: want the whole hash of a commit"},
		{git, "source=https://git.example.org/a,branch=b,rev=0123456789abcdef0123456789abcdef01234567,target=/a", "branch and rev: give one of them"},
		{git, "source=https://git.example.org/a,secret=hunter2/Key,target=/a", "secret: want the name of a Secret in your project"},
		{s3, "bucket=data,key=a,url=https://s3.example.org,secret=wJalr/hunter2,target=/a", "secret: want the name of a Secret in your project"},
		{s3, "bucket=data,key=AKIAIOSFODNN7EXAMPLE,url=https://s3.example.org,target=/a", "key: want the beginning of the objects' names; an access key belongs in a Secret"},
		{s3, "bucket=data,key=../other,url=https://s3.example.org,target=/a", "key: want the beginning of the objects' names"},
		{s3, "bucket=data,key=-a,url=https://s3.example.org,target=/a", "key: want the beginning of the objects' names"},
		{s3, "bucket=-v,url=https://s3.example.org,target=/a", "bucket: want the name of a bucket"},
		{s3, "bucket=a/../b,url=https://s3.example.org,target=/a", "bucket: want the name of a bucket"},
		{s3, "bucket=data,url=https://anna:hunter2@s3.example.org,target=/a", "url: want the server"},
		{s3, "https://anna:hunter2@s3.example.org/data", "a key is unknown; want bucket=..."},
		{s3, "bucket=data,url=https://anna:hunter2,a@s3.example.org,target=/a", "a key is unknown; want bucket=..."},
		{s3, "bucket=data,url=https://s3.example.org?X-Amz-Signature=hunter2,target=/a", "url: want the server"},
		{s3, "bucket=data,url=file:///etc,target=/a", "url: want the server"},
		{s3, "bucket=data,url=https://s3.example.org,region=--config,target=/a", "region: want a region"},
		{s3, "bucket=data,target=/a", `key "url" is missing`},
		{git, "source=https://git.example.org/a,target=a", `path "a": want an absolute path of the container`},
		{git, "source=https://git.example.org/a,target=/", "target: want a path of the container"},
		{git, "source=https://git.example.org/a,target=/.", `path "/.": want a folder below /, without ..`},
		{git, "source=https://git.example.org/a,target=/a$(GIT_PASSWORD)", "target: want a path of the container"},
		{git, "source=https://git.example.org/a,target=/a\nb", "target: want a path of the container"},
		{git, "source=https://git.example.org/a,target=/a/../../etc", "want a folder below /, without .."},
	}
}

// Values that could be options, other repositories or credentials are refused, and no message has a credential.
func TestRefusedFetches(t *testing.T) {
	for _, tt := range refusedFetches() {
		t.Run(tt.text, func(t *testing.T) {
			got, err := render([]string{"n", "-i", "a", tt.flag, tt.text}, "")
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), hidden) {
				t.Errorf("error %v\nwant %s\n%s", err, tt.want, got)
			}
		})
	}
}

// What is accepted has no value that a program or Kubernetes would take for more than a value.
func FuzzFetch(f *testing.F) {
	f.Add(true, "source=ssh://git@host:22/~a/b.git,branch=a/b#1,secret=key,target=/a")
	f.Add(true, "source=git@host:a,rev=0123456789abcdef0123456789abcdef01234567,secret=key,target=/-a")
	f.Add(false, "bucket=abc,key=a=b,url=http://[::1]:9000,region=a,secret=a.b,target=/a/./b")
	f.Fuzz(func(t *testing.T, isGit bool, text string) {
		flag := "--s3"
		if isGit {
			flag = "--git-sync"
		}
		m, err := submission.ParseMount(flag, text)
		if err != nil {
			return
		}
		objects, err := submission.Objects(&submission.Request{
			Name: "n", Image: "a", Mounts: []submission.Mount{m}, Images: map[string]string{"git-image": "git", "s3-image": "rclone"},
		})
		if err != nil {
			return
		}
		var job batchv1.Job
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, &job); err != nil {
			t.Fatal(err)
		}
		container := job.Spec.Template.Spec.InitContainers[0]
		values := container.Command[2:]
		if isGit {
			values = container.Command[3:] // after the script
		}
		for _, value := range values {
			isOption := strings.HasPrefix(value, "--depth=") || strings.HasPrefix(value, "--branch=") || strings.HasPrefix(value, "--revision=") || value == "--"
			if strings.HasPrefix(value, "-") && !isOption || strings.ContainsAny(value, "$`\"'\\ \t\r\n\x00") {
				t.Errorf("%q gives the argument %q", text, value)
			}
		}
		for _, variable := range container.Env {
			if strings.Contains(variable.Value, "$(") || strings.ContainsAny(variable.Value, "\r\n\x00") {
				t.Errorf("%q gives the variable %s=%q", text, variable.Name, variable.Value)
			}
		}
	})
}
