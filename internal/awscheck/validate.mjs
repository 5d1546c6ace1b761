// Prints one JSON line for each template that is named, with what AWS's own
// rules find in it.
import validator from "@aws/cloudformation-validate";

// What is said of every template that has resources: that some properties cannot
// be changed in place, and that there are no tags, which a stack has for all.
const config = { exclude: { ids: ["I9001", "I9040"] } };

const engine = new validator.CelEngine();
for (const file of process.argv.slice(2)) {
  const { diagnostics } = engine.validateStandard(new validator.TemplateFile(file), config);
  console.log(JSON.stringify({ file, diagnostics }));
}
engine.free();
