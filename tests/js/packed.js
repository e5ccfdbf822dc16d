// Proves that a pack is the program that it was made of: node tests/js/packed.js <typescript> <cases>.
//
// `cases` is a file of JSON: names, and for each the text as it was joined and as it is packed. Both are
// parsed by TypeScript. The trees must be the same, node by node: each variable is bound to the same
// declaration in both, and what is not bound at all has the same name; members have the same names, but
// for `#name` and `_name`, each of which has one other name that no other member has. What is wrong is
// printed as JSON, by name.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const ts = createRequire(import.meta.url)(process.argv[2]);
const classes = new Map();
const cases = JSON.parse(readFileSync(process.argv[3], "utf8"));
// What browsers have and Node 20 has not.
const BROWSERS = ["WebSocket", "document", "location"];

function compared(joined, packed) {
  const texts = { "joined.js": joined, "packed.js": packed };
  const program = programOf(texts);
  const wrong = [];
  for (const file of Object.keys(texts)) {
    const source = program.getSourceFile(file);
    program.getTypeChecker(); // which finds names that are declared twice
    for (const { messageText } of [...program.getSyntacticDiagnostics(source), ...source.bindDiagnostics]) {
      wrong.push(`${file}: ${ts.flattenDiagnosticMessageText(messageText, " ")}`);
    }
  }
  if (wrong.length) return wrong;
  const [before, after] = Object.keys(texts).map((file) => leaves(program, program.getSourceFile(file)));
  const same = { variable: pairing(), private: pairing(), agreed: pairing() };
  for (let at = 0; at < Math.max(before.length, after.length); at++) {
    const [one, other] = [before[at], after[at]];
    const kind = one?.kind === "member" && one.text.startsWith("_") ? "agreed" : one?.kind;
    const fine =
      one?.kind === other?.kind &&
      (kind in same ? same[kind](one.is ?? one.text, other.is ?? other.text) : one.text === other.text);
    if (!fine) return [`${told(one)} became ${told(other)}, behind ${before.slice(at - 8, at).map(told).join(" ")}`];
  }
  // A member whose name was changed is not called like another one, and is made here.
  const agreed = new Set(after.filter((_, at) => before[at].kind === "member" && before[at].text.startsWith("_")).map(({ text }) => text));
  const others = before.filter(({ kind, text }) => kind === "member" && !text.startsWith("_"));
  for (const { text } of others) if (agreed.has(text)) wrong.push(`two members are called ${text}`);
  const made = new Set(before.filter(({ makes }) => makes).map(({ text }) => text));
  for (const { kind, text } of before) {
    if (kind === "member" && text.startsWith("_") && !made.has(text)) wrong.push(`${text} is not made here`);
    if (kind === "constant") wrong.push(`${text} is assigned to`);
    if (kind === "global" && !(text in globalThis) && !BROWSERS.includes(text)) wrong.push(`there is no ${text}`);
  }
  return wrong;
}

const told = (leaf) => (leaf ? `${leaf.kind} ${leaf.text}` : "nothing");

// Says whether two belong together: as they did before, or for the first time.
function pairing() {
  const [there, back] = [new Map(), new Map()];
  return (one, other) => {
    if (!there.has(one) && !back.has(other)) {
      there.set(one, other);
      back.set(other, one);
    }
    return there.get(one) === other && back.get(other) === one;
  };
}

function programOf(texts) {
  const options = { allowJs: true, checkJs: true, noLib: true, noResolve: true, target: ts.ScriptTarget.ESNext };
  const host = {
    ...ts.createCompilerHost(options),
    getSourceFile: (name) => ts.createSourceFile(name, texts[name], ts.ScriptTarget.ESNext, true, ts.ScriptKind.JS),
    fileExists: (name) => name in texts,
    readFile: (name) => texts[name],
    getDefaultLibFileName: () => "",
    writeFile: () => {},
  };
  return ts.createProgram(Object.keys(texts), options, host);
}

// The tree as a list: its inner nodes by kind, and its names and texts.
function leaves(program, source) {
  const checker = program.getTypeChecker();
  const found = [];
  const add = (kind, text, more) => found.push({ kind, text, ...more });
  const member = (name, makes = false) => {
    if (ts.isPrivateIdentifier(name)) hidden(name);
    else if (ts.isIdentifier(name)) add("member", name.text, { makes });
    else visit(name);
  };
  const hidden = (name) => add("private", name.text, { is: `${classOf(name)} ${name.text}` });
  const variable = (name, symbol = checker.getSymbolAtLocation(name)) => {
    const bound = symbol?.declarations?.some((one) => one.getSourceFile() === source);
    if (bound && isAssignedTo(name) && isConstant(symbol)) add("constant", name.text);
    else if (bound) add("variable", name.text, { is: symbol });
    else add("global", name.text);
  };
  const visit = (node) => {
    if (ts.isIdentifier(node)) return variable(node);
    if (ts.isPrivateIdentifier(node)) return hidden(node);
    if (ts.isShorthandPropertyAssignment(node)) {
      // { a } is { a: a }
      add("node", "PropertyAssignment");
      member(node.name);
      return variable(node.name, checker.getShorthandAssignmentValueSymbol(node));
    }
    if (ts.isBindingElement(node) && ts.isObjectBindingPattern(node.parent) && !node.dotDotDotToken) {
      // { a = 1 } is { a: a = 1 }
      add("node", "BindingElement");
      member(node.propertyName ?? node.name);
      visit(node.name);
      return node.initializer && visit(node.initializer);
    }
    add("node", ts.SyntaxKind[node.kind]);
    if (ts.isImportSpecifier(node) || ts.isExportSpecifier(node)) {
      add("outward", (node.propertyName ?? node.name).text);
      if (ts.isExportSpecifier(node)) variable(node.name, checker.getExportSpecifierLocalTargetSymbol(node));
      return add("outward", node.name.text);
    }
    if (ts.isMetaProperty(node)) return add("text", node.getText());
    if (ts.isPropertyAccessExpression(node)) {
      visit(node.expression);
      add("text", node.questionDotToken ? "?." : ".");
      const makes = node.expression.kind === ts.SyntaxKind.ThisKeyword && ts.isBinaryExpression(node.parent) && node.parent.left === node;
      return member(node.name, makes);
    }
    const named = ts.isPropertyAssignment(node) || ts.isClassElement(node) || ts.isMethodDeclaration(node);
    if (named && node.name) member(node.name, ts.isClassElement(node));
    if (ts.isVariableDeclarationList(node)) add("text", "let"); // or const, which nobody assigns to
    if (ts.isLiteralExpression(node) || ts.isTemplateMiddleOrTemplateTail(node) || ts.isTemplateHead(node)) add("text", node.text);
    if (ts.isRegularExpressionLiteral(node)) add("text", node.getText());
    if (ts.isPrefixUnaryExpression(node) || ts.isPostfixUnaryExpression(node)) add("text", ts.tokenToString(node.operator));
    ts.forEachChild(node, (child) => (named && child === node.name ? undefined : visit(child)));
  };
  visit(source);
  return found;
}

// In a pack nothing is constant: so nobody may rely on that.
const isConstant = ({ valueDeclaration: one }) =>
  ts.isVariableDeclaration(one) && Boolean(ts.getCombinedNodeFlags(one) & ts.NodeFlags.Const);

function isAssignedTo(name) {
  const { parent } = name;
  if (ts.isPrefixUnaryExpression(parent) || ts.isPostfixUnaryExpression(parent)) {
    return [ts.SyntaxKind.PlusPlusToken, ts.SyntaxKind.MinusMinusToken].includes(parent.operator);
  }
  return ts.isBinaryExpression(parent) && parent.left === name && ts.isAssignmentOperator(parent.operatorToken.kind);
}

// A number for the class that has a private member.
function classOf(name) {
  let at = name.parent;
  while (at && !(ts.isClassLike(at) && at.members.some((one) => one.name?.text === name.text))) at = at.parent;
  if (!classes.has(at)) classes.set(at, classes.size);
  return classes.get(at);
}

const found = Object.entries(cases).map(([name, texts]) => [name, compared(...texts)]);
console.log(JSON.stringify(Object.fromEntries(found)));
