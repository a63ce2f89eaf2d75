package main

import (
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

// update replaces the expected answers in the stories by the command's present answers: go test ./cmd/relink -update.
// Read the difference before you commit it.
var update = flag.Bool("update", false, "write what the command answers into the stories")

// answered has the command's answers, by story and file.
var answered = struct {
	sync.Mutex
	stories map[string]map[string]string
}{stories: map[string]map[string]string{}}

// takeAnswer keeps the answer for writeAnswers. If a story expects one file twice, both answers must be the same.
func takeAnswer(ts *testscript.TestScript, file, answer string) {
	answered.Lock()
	defer answered.Unlock()
	story := answered.stories[ts.Name()]
	if story == nil {
		story = map[string]string{}
		answered.stories[ts.Name()] = story
	}
	if was, twice := story[file]; twice && spaces.ReplaceAllString(was, "  ") != spaces.ReplaceAllString(answer, "  ") {
		ts.Fatalf("%s is answered twice, and not the same:\n%s\nand\n%s", file, was, answer)
	}
	story[file] = answer
}

// writeAnswers writes the answers into the stories of the directory, after they have run.
func writeAnswers(t *testing.T, dir string) {
	t.Cleanup(func() {
		answered.Lock()
		defer answered.Unlock()
		for name, files := range answered.stories {
			path := filepath.Join(dir, name+".txt")
			archive, err := txtar.ParseFile(path)
			if os.IsNotExist(err) {
				continue // This story is in another directory.
			}
			if err != nil {
				t.Error(err)
				continue
			}
			for i, f := range archive.Files {
				if answer, is := files[f.Name]; is && spaces.ReplaceAllString(answer, "  ") != spaces.ReplaceAllString(string(f.Data), "  ") {
					archive.Files[i].Data = []byte(answer)
				}
			}
			if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
}
