// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// programFolders are the folders in which a shell finds programs.
var programFolders = []string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"}

// shells are the names of shells, all the same here.
var shells = []string{"ash", "bash", "dash", "sh", "zsh"}

const osRelease = `PRETTY_NAME="Sluice simulated container"
NAME="Sluice simulated container"
ID=sluice-simulated
`

const readMe = `This container is simulated: no image was pulled and no process runs.
"help" lists the commands of its shell.
`

// files is the tree of a container's files, all in memory. Paths are absolute and clean.
type files struct {
	content map[string]string
	folders map[string]bool
}

// newFiles returns the files of every container, and those of this one.
func newFiles(c Container) files {
	f := files{content: map[string]string{}, folders: map[string]bool{"/": true}}
	for _, folder := range []string{"/bin", "/dev", "/etc", "/home", "/mnt", "/opt", "/proc", "/root", "/sys", "/tmp", "/usr", "/var", c.WorkingDir} {
		f.addFolder(folder)
	}
	for _, folder := range c.Folders {
		f.addFolder(folder)
	}
	f.add("/README", readMe)
	f.add("/etc/hostname", c.Hostname+"\n")
	f.add("/etc/os-release", osRelease)
	for _, name := range commandNames() {
		f.add("/usr/bin/"+name, "")
	}
	for name, content := range c.Files {
		f.add(name, content)
	}
	return f
}

func (f files) add(name, content string) {
	name = path.Clean("/" + name)
	f.content[name] = content
	f.addFolder(path.Dir(name))
}

// addFolder adds a folder and those above it.
func (f files) addFolder(name string) {
	for name = path.Clean("/" + name); !f.folders[name]; name = path.Dir(name) {
		f.folders[name] = true
	}
}

func (f files) isFolder(name string) bool { return f.folders[name] }

func (f files) read(name string) (content string, found bool) {
	content, found = f.content[name]
	return content, found
}

// list returns the names in a folder, sorted, folders with a slash.
func (f files) list(folder string) []string {
	prefix := strings.TrimSuffix(folder, "/") + "/"
	names := map[string]bool{}
	for name := range f.content {
		if rest, inside := strings.CutPrefix(name, prefix); inside && !strings.Contains(rest, "/") {
			names[rest] = true
		}
	}
	for name := range f.folders {
		if rest, inside := strings.CutPrefix(name, prefix); inside && rest != "" && !strings.Contains(rest, "/") {
			names[rest+"/"] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// resolve returns the absolute path of an argument; .. never leaves the root.
func (s *session) resolve(name string) string {
	if name == "~" || strings.HasPrefix(name, "~/") {
		name = s.env["HOME"] + name[1:]
	}
	if !path.IsAbs(name) {
		name = s.dir + "/" + name
	}
	return path.Clean("/" + name)
}
